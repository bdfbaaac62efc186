"""Every figure and every claim in the text of module 01, held against the library."""

import pytest

from lib_dlhpc.calibration.messages import curve
from lib_dlhpc.calibration.numbers import TRAFFIC
from lib_dlhpc.costs.roofline import layer_times
from lib_dlhpc.explore.one_step import here, kernels, layers, passes
from lib_dlhpc.explore.one_step.machines import Mine
from lib_dlhpc.explore.one_step.measured import GEMM, SUM, message_ratio
from lib_dlhpc.explore.one_step.roofline import (
    ARITHMETIC,
    MEMORY,
    START,
    Setting,
    device_of,
    gain,
    point,
    roof,
)
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.machine import read_device

MINE = Mine()
GPUS = ("v100-sxm2-16gb", "a100-sxm-40gb", "h100-sxm-80gb")


def at(**changes):
    """A point of experiment 1, from the setting it begins with."""
    setting = Setting(**changes)
    return point(setting, device_of(setting, MINE))


def steps(**changes):
    """What a step of experiment 2 takes, its rows and its walls."""
    setting = layers.Setting(**changes)
    own = layers.device_of(setting, MINE)
    run = predict(layers.experiment(setting, own))
    return (
        float(run.step_time),
        {row.name: row.bound for row in layers.rows(setting, own)},
        run.walls,
    )


def test_the_first_question_is_about_33_6_million_flop_and_as_many_bytes():
    layer = at()
    assert layer.work == pytest.approx(33.6e6, rel=2e-3) == layer.moved
    peak, _ = roof(device_of(Setting(), MINE))
    assert peak == 125e12 and layer.work / peak == pytest.approx(0.27e-6, rel=0.01)
    assert layer.seconds == pytest.approx(42.3e-6, rel=1e-3)


def test_the_layer_begins_on_the_slope_and_8_times_the_arithmetic_does_nothing_for_it():
    assert at().bound == MEMORY and gain(Setting(), MINE) == pytest.approx(1)


def test_a_larger_batch_goes_up_the_slope_until_it_is_level_and_then_arithmetic_helps():
    assert at(batch=64).bound == MEMORY and at(batch=128).bound == ARITHMETIC
    assert at(batch=64).rate > 60 * at().rate and at(batch=64).seconds < 1.03 * at().seconds
    assert gain(Setting(batch=4096), MINE) > 7.5


def test_a_narrow_layer_is_a_thousand_times_below_the_roof_for_it_is_starting():
    small, (peak, ridge) = at(width=64), roof(device_of(Setting(), MINE))
    assert small.bound == START
    assert peak * small.intensity / ridge / small.rate == pytest.approx(1050, rel=0.01)


def test_a_convolution_uses_each_weight_at_every_pixel():
    assert at(layer="conv3", width=256).intensity > 200 * at(width=256).intensity


def test_the_slope_of_a_laptop_ends_sooner():
    ridges = [roof(device_of(Setting(name), MINE))[1] for name in ("laptop-core", GPUS[0])]
    assert ridges == pytest.approx([5.6, 139], rel=0.01)


def test_a_step_of_the_digits_grows_by_less_than_a_third_with_twice_the_batch():
    step = layers.Setting()
    assert layers.growth(step, layers.device_of(step, MINE)) == pytest.approx(1.29, abs=0.005)


def test_layers_change_their_name_as_the_batch_grows():
    bounds = [steps(batch=batch)[1] for batch in (1, 16, 1024)]
    assert {bounds[0][name] for name in bounds[0] if name != "update"} == {"launch-bound"}
    assert bounds[1]["conv2"] == "compute-bound" and bounds[1]["relu2"] == "memory-bound"
    assert "launch-bound" not in bounds[2].values()
    assert steps(batch=1024)[0] == pytest.approx(2 * steps(batch=512)[0], rel=0.02)


def test_the_memory_bound_layers_of_lenet_compute_next_to_nothing():
    _, bounds, _ = steps(model="lenet5")
    streamed = {name for name, bound in bounds.items() if bound == "memory-bound"}
    assert streamed == {"tanh1", "avg_pool1", "tanh2", "avg_pool2", "update"}


def test_8_times_the_peak_halves_a_small_step_of_resnet():
    peaks = [read_device(name).peak["fp16"] for name in (GPUS[0], GPUS[-1])]
    assert peaks == [125e12, 989e12]
    small = [steps(model="resnet50", device=name)[0] for name in GPUS]
    assert small == sorted(small, reverse=True)
    assert small[0] / small[-1] == pytest.approx(1.91, abs=0.01)
    large = [steps(model="resnet50", device=name, batch=64)[0] for name in GPUS]
    assert large[0] / large[-1] == pytest.approx(3.30, abs=0.01)


def test_a_batch_of_512_does_not_fit_a_v100():
    assert steps(model="resnet50", device=GPUS[0], batch=256)[2] == []
    assert "fits is 362" in steps(model="resnet50", device=GPUS[0], batch=512)[2][0]


def test_in_the_example_512_times_the_bytes_take_1_8_times_as_long():
    assert message_ratio(MINE) == pytest.approx(1.8, abs=0.005)


def test_products_of_the_example_are_as_fast_as_they_get_from_96_on():
    edges, took = curve(MINE.raw, GEMM)
    rates = {n: 2 * n**3 / s for n, s in zip(edges, took, strict=True)}
    assert max(rates, key=rates.get) == 96 and rates[64] < 0.9 * rates[96]
    assert min(rate for n, rate in rates.items() if n >= 96) > 0.85 * rates[96]


def test_arrays_of_64_kb_pass_the_most_bytes_in_the_example():
    """The notes: 98 GB/s where the fit has 70."""
    sizes, took = curve(MINE.raw, SUM)
    rates = {n: TRAFFIC * n / s for n, s in zip(sizes, took, strict=True)}
    assert max(rates, key=rates.get) == 4**8 and rates[4**8] == pytest.approx(98e9, rel=0.01)
    assert MINE.machine.device.memory_bandwidth == pytest.approx(70e9, rel=0.01)
    assert rates[1024] < 0.2 * rates[4**8]
    assert max(rate for n, rate in rates.items() if n > 4**8) < 0.7 * rates[4**8]


def test_the_law_of_the_text_is_that_of_the_library():
    own, n, b = device_of(Setting(), MINE), 4096, 16
    work, moved = 2 * b * n**2, 2 * (n**2 + 2 * b * n)
    rate = own.efficiency * own.peak["fp16"]
    law = max((work + own.half_work) / rate, moved / own.memory_bandwidth) + own.launch
    each = at(batch=b)
    assert each.seconds == pytest.approx(law, rel=1e-3)
    assert each.intensity == pytest.approx(work / moved, rel=1e-3)
    assert at().intensity == pytest.approx(2 * 1 / 2, rel=1e-3)  # 2 b / s
    setting = layers.Setting(device=GPUS[0])
    own = layers.device_of(setting, MINE)
    times = layer_times(layers.experiment(setting, own).model, own, 8, "fp16")
    assert times.backward == pytest.approx(2 * times.forward)


def test_the_exchange_of_two_ranks_is_8_percent_of_a_step():
    assert here.exchange_share(here.Setting(), MINE) == pytest.approx(0.082, abs=1e-3)


def test_the_small_network_of_a_check_takes_171_and_176_us():
    both = [steps(model="mlp-digits", batch=batch)[0] for batch in (8, 16)]
    assert both == pytest.approx([171e-6, 176e-6], abs=0.5e-6)


def test_what_the_check_says_leaves_starting_only():
    setting = layers.Setting(model="mlp-digits")
    own = layers.device_of(setting, MINE)
    weights = 4 * layers.experiment(setting, own).model.parameters
    assert (weights, own.memory_bandwidth) == (pytest.approx(26e3, rel=0.02), 20e9)
    assert weights / own.memory_bandwidth == pytest.approx(1.3e-6, rel=0.02)
    assert 10 * weights / own.memory_bandwidth < 0.1 * steps(model="mlp-digits")[0]
    _, bounds, _ = steps(model="mlp-digits")
    assert {bound for name, bound in bounds.items() if name != "update"} == {"launch-bound"}


def test_attention_takes_far_more_of_a_step_than_of_its_flop_until_it_is_fused():
    """The notes have these numbers, too."""
    eager = kernels.Setting()
    fused = eager._replace(attention="on")
    assert kernels.flop_share(eager) == pytest.approx(0.09, abs=0.005)
    assert kernels.time_share(eager) == pytest.approx(0.413, abs=0.001)
    assert kernels.times_as_fast(eager, attention="on") == pytest.approx(1.575, abs=0.005)
    light = []
    for setting in (fused, fused._replace(fused=True)):
        found = kernels.operators(setting)
        light.append((found["normalization"].moved + found["elementwise"].moved) / 1e9)
    assert light == pytest.approx([41.8, 30.3], abs=0.05)


def test_an_h100_starts_kernels_no_faster_than_an_a100():
    peaks = [read_device(name).peak["fp16"] for name in (GPUS[1], GPUS[-1])]
    assert peaks[1] / peaks[0] == pytest.approx(3.2, abs=0.05)
    launches = [float(read_device(name).launch) for name in kernels.DEVICES.values()]
    assert launches == pytest.approx([5e-6] * 3)


def test_blocks_of_the_example_gain_less_than_the_bytes_that_they_save():
    assert passes.predicted(passes.Setting(), MINE).gain == pytest.approx(1.45, abs=0.005)
    assert passes.cache_gain(passes.Setting(), MINE) < passes.Setting().passes / 4


def test_the_answers_of_the_instructors_notes():
    both = [gain(Setting(batch=batch), MINE) for batch in (1, 4096)]
    assert [round(each, 1) for each in both] == [1.0, 7.6]
    assert at(batch=64).seconds == pytest.approx(43e-6, rel=0.02)
    assert at(layer="conv3", width=256).intensity == pytest.approx(209, abs=1)
    step = layers.Setting(batch=64)
    assert layers.growth(step, layers.device_of(step, MINE)) == pytest.approx(1.77, abs=0.005)
    small = [1e3 * steps(model="resnet50", device=name)[0] for name in GPUS]
    assert [round(each, 1) for each in small] == [9.2, 6.4, 4.8]
    large = [1e3 * steps(model="resnet50", device=name, batch=64)[0] for name in GPUS]
    assert [round(each, 1) for each in large] == [46.5, 25.8, 14.1]
    bounds = {batch: steps(batch=batch)[1] for batch in (8, 16, 64, 128, 256, 512)}
    for name, first in (("relu1", 8), ("conv2", 16), ("conv1", 128), ("dense1", 512)):
        launched = {batch for batch, names in bounds.items() if names[name] == "launch-bound"}
        assert launched == {batch for batch in bounds if batch < first}
    shares = [
        here.exchange_share(here.Setting("cnn-digits", batch), MINE) for batch in here.BATCHES
    ]
    assert round(max(shares), 3) == 0.026
    link = MINE.machine.intra_node
    assert link.latency * link.bandwidth > 4096
