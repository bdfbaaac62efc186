"""The lesson on one step: every control moves something, walls stand where they say, what is measured is shown."""

import json
import threading
from dataclasses import replace
from subprocess import TimeoutExpired
from typing import Any

import numpy as np
import pytest
from experiment_page import (
    Now,
    button,
    click,
    controls,
    each_position_shows_its_own,
    fills,
    result_text,
    shown,
)
from planted import Planted

from lib_dlhpc.calibration.machine import fit_machine
from lib_dlhpc.costs.roofline import layer_times, update_time
from lib_dlhpc.explore.blocks.drawing import drawings_of
from lib_dlhpc.explore.blocks.ranks import stoppable
from lib_dlhpc.explore.one_step import drawings as one_step_drawings
from lib_dlhpc.explore.one_step import here, kernels, layers, measured, passes, stored
from lib_dlhpc.explore.one_step.machines import (
    DEVICES,
    Mine,
    example_points,
    faster_arithmetic,
    faster_memory,
    faster_start,
    precision_of,
)
from lib_dlhpc.explore.one_step.questions import ask
from lib_dlhpc.explore.one_step.roofline import (
    BATCHES,
    BOUND,
    Setting,
    device_of,
    gain,
    point,
    roof,
    roofline,
    roofline_view,
)
from lib_dlhpc.launch.local import JobError
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.machine import read_device

LAPTOP = Setting("laptop-core", width=256)


pytestmark = pytest.mark.usefixtures("own_state")


@pytest.fixture(scope="module")
def known() -> Any:
    """A machine whose numbers were planted, as it is measured."""
    return fit_machine(Planted(noise=0.03, rounds=12).raw())


@pytest.fixture
def mine() -> Mine:
    return Mine()


def states(mine: Mine) -> dict[str, Any]:
    """A state of each drawing."""
    step, at = layers.Setting(), measured.Setting()
    core = layers.device_of(step, mine)
    walled = layers.Setting("resnet50", "v100-sxm2-16gb")
    return {
        "one_step_roofline": roofline_view(Setting(), device_of(Setting(), mine)),
        "one_step_layers": layers.layers_view(step, core),
        "one_step_batch": layers.batch_view(walled, layers.device_of(walled, mine)),
        "one_step_products": measured.products_view(at, mine),
        "one_step_messages": measured.messages_view(at, mine),
        "one_step_sums": measured.sums_view(at, mine),
        **kernels.step_by_kernels.view(kernels.Setting()).charts,
        "one_step_passes": passes.passes_state(passes.Times(2.0, 1.0), passes.Times(3.0, 1.0)),
    }


def test_a_state_fills_every_dataset_and_field_of_its_drawing(mine):
    found = states(mine)
    assert set(found) == set(drawings_of(one_step_drawings))
    for name, state in found.items():
        fills(name, state)


@pytest.mark.parametrize("experiment", [roofline, layers.step_by_layers])
def test_every_position_of_every_control_shows_something_of_its_own(mine, experiment):
    page = experiment(mine)
    assert 3 <= len(controls(page)) <= 6
    each_position_shows_its_own(page)


# under the roof ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES.values())
def test_no_layer_is_above_the_roof_and_its_rate_grows_with_the_batch(mine, device):
    for layer, width in (("dense", 8), ("dense", 4096), ("conv3", 64), ("conv1", 512)):
        setting = Setting(device, layer, width)
        own = device_of(setting, mine)
        peak, ridge = roof(own)
        points = [point(setting._replace(batch=batch), own) for batch in BATCHES]
        for each in points:
            assert each.rate <= min(peak, peak * each.intensity / ridge) * (1 + 1e-9)
        rates = [each.rate for each in points]
        assert rates == sorted(rates)


def test_a_point_takes_what_the_library_says_and_its_causes_are_the_parts_of_that(mine):
    for setting in (Setting(), LAPTOP, LAPTOP._replace(batch=4096), LAPTOP._replace(width=8)):
        own, each = device_of(setting, mine), point(setting, device_of(setting, mine))
        started, streamed, computed = (
            each.causes[cause] for cause in ("start", "memory", "arithmetic")
        )
        assert each.seconds == pytest.approx(started + max(streamed, computed))
        assert streamed == pytest.approx(each.moved / own.memory_bandwidth)
        assert computed == pytest.approx(each.work / (roof(own)[0] * own.efficiency))


def test_faster_arithmetic_helps_what_is_bound_by_it_and_nothing_else(mine):
    bounds = {}
    for setting in (Setting(), Setting(width=64), Setting(batch=4096)):
        bounds[point(setting, device_of(setting, mine)).bound] = gain(setting, mine)
    assert set(bounds) == set(BOUND)
    assert bounds["memory"] == pytest.approx(1) and bounds["start"] < 1.01
    assert 4 < bounds["arithmetic"] < 8


def test_the_wall_says_which_of_the_two_it_is_and_is_gone_under_the_flat_roof(mine):
    page = roofline(mine)
    by_name = controls(page)
    assert "Wall. Memory-bound: 33.6 MB are moved" in result_text(page)
    by_name["Width"].value = 64
    assert "Wall. Launch-bound" in result_text(page)
    by_name["Width"].value, by_name["Batch"].value = 4096, 4096
    assert "✓ Compute-bound: 79% of the peak; large matmuls reach 80%." in result_text(page)


def test_the_check_asks_on_both_sides_of_the_ridge_and_for_the_lower_roof():
    flat = []
    for seed in range(40):
        card = ask("attainable", seed)
        text = card.question.question
        intensity, bandwidth, peak = (
            float(text.split(word)[0].split()[-1])
            for word in (" FLOP per byte", " GB/s,", " TFLOP/s.")
        )
        slope = intensity * bandwidth / 1e3
        flat.append(slope > peak)
        for answer, right in ((max(slope, peak), False), (min(slope, peak), True)):
            assert card.question.answer(f"{answer:.6g}")["right"] is right
    assert 0.25 < np.mean(flat) < 0.75  # neither roof can be guessed


# what if ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", [device for device in DEVICES.values() if device != "measured"])
def test_all_of_a_device_twice_as_fast_halves_a_step_and_no_part_does_more(mine, device):
    setting = layers.Setting(device=device)
    own = layers.device_of(setting, mine)
    gains = layers.gains(setting, own)
    assert all(-1e-9 <= each < 0.5 + 1e-9 for each in gains.values())
    all_of_it = own
    for quicker in (faster_arithmetic, faster_memory, faster_start):
        all_of_it = quicker(all_of_it, 2.0)
    assert layers.step_time(setting, all_of_it) == pytest.approx(layers.step_time(setting, own) / 2)


def test_parts_of_a_measured_core_add_up_and_so_do_what_halves_them(mine):
    setting = layers.Setting(device="measured")
    gains = layers.gains(setting, layers.device_of(setting, mine))
    assert sum(gains.values()) == pytest.approx(0.5, abs=0.01)


def test_devices_compute_in_what_they_are_fast_in():
    assert precision_of(read_device("v100-sxm2-16gb")) == "fp16"
    assert precision_of(read_device("xeon-8280")) == "fp32"


# layer by layer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES.values())
@pytest.mark.parametrize("model", layers.MODELS.values())
def test_the_rows_are_all_of_the_step_that_is_predicted(mine, device, model):
    setting = layers.Setting(model, device)
    own = layers.device_of(setting, mine)
    rows = layers.rows(setting, own)
    assert len(rows) <= 14 and len({row.name for row in rows}) == len(rows)
    whole = sum(row.seconds for row in rows)
    assert whole == pytest.approx(layers.step_time(setting, own))


def test_many_layers_are_put_together_by_kind_the_longest_first(mine):
    setting = layers.Setting("resnet50", "v100-sxm2-16gb")
    own = layers.device_of(setting, mine)
    *kinds, update = layers.rows(setting, own)
    assert kinds[0].name == "conv (53)" and update.name == "update"
    each = [row.seconds for row in kinds]
    assert each == sorted(each, reverse=True)
    model = layers.experiment(setting, own).model
    convs = np.array([layer.kind == "conv" for layer in model.layers])
    times = layer_times(model, own, setting.batch, "fp16")
    assert kinds[0].passes["backward"] == pytest.approx(times.backward[convs].sum())
    assert update.passes["update"] == pytest.approx(update_time(model, own, "momentum"))


def test_shares_are_of_the_whole_step(mine):
    setting = layers.Setting()
    assert sum(layers.shares(setting, layers.device_of(setting, mine)).values()) == pytest.approx(1)


def test_a_batch_that_does_not_fit_is_a_wall_and_is_hatched(mine):
    page = layers.step_by_layers(mine)
    by_name = controls(page)
    assert "✓ It fits." in result_text(page)
    by_name["Network"].value, by_name["Device"].value = "resnet50", "v100-sxm2-16gb"
    by_name["Batch"].value = 1024
    assert "✕ Wall. Memory" in result_text(page)
    setting = layers.Setting("resnet50", "v100-sxm2-16gb", 1024)
    data, _ = layers.batch_view(setting, layers.device_of(setting, mine))
    (first,) = data["wall"]["x"]
    fits = setting._replace(batch=first // 2)
    assert predict(layers.experiment(fits, layers.device_of(fits, mine))).walls == []


# kernels ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", kernels.ATTENTIONS.values())
@pytest.mark.parametrize("model", kernels.MODELS.values())
def test_eager_classes_are_all_of_the_step_that_is_predicted(model, attention):
    setting = kernels.Setting(model, attention=attention)
    step = predict(kernels.experiment(setting))
    whole = kernels.total(kernels.operators(setting)).seconds
    assert whole == pytest.approx(float(step.compute), rel=1e-9)


@pytest.mark.parametrize("device", kernels.DEVICES.values())
def test_fusing_removes_bytes_and_kernels_and_never_costs_time(device):
    for attention in kernels.ATTENTIONS.values():
        setting = kernels.Setting(device=device, attention=attention)
        eager, fused = (kernels.operators(each) for each in (setting, setting._replace(fused=True)))
        assert eager["GEMM"] == fused["GEMM"] and eager["attention"] == fused["attention"]
        before, after = kernels.total(eager), kernels.total(fused)
        assert after.moved < before.moved and after.kernels < before.kernels
        assert after.seconds < before.seconds
        assert kernels.times_as_fast(setting, fused=True) > 1


def test_stored_scores_of_long_sequences_are_a_wall():
    page = kernels.step_by_kernels()
    by_name = controls(page)
    assert "✓ It fits." in result_text(page)
    by_name["Sequence"].value = 4096
    assert "✕ Wall. Memory" in result_text(page)
    by_name["Attention"].value, by_name["Batch"].value = "on", 1
    assert "✓ It fits." in result_text(page)


# passes -----------------------------------------------------------------------------------------------


def test_blocks_compute_the_same_bits_in_any_size():
    start = np.linspace(-1, 1, 1000, dtype=np.float32)
    whole = start.copy()
    passes.run_passes(whole, 5, len(whole))
    assert whole == pytest.approx(((start / 2 + 1) / 2 + 1) / 2)
    for block in (1, 7, 999, 1000, 4000):
        array = start.copy()
        passes.run_passes(array, 5, block)
        assert np.array_equal(array, whole)


def test_what_a_click_runs_is_measured_both_ways():
    found = passes.measure(passes.Setting(2, 4**7, 4**5))
    assert all(seconds > 0 for seconds in found)


def test_predicted_passes_gain_no_more_than_their_number(mine):
    for count in passes.PASSES:
        for block in passes.BLOCKS:
            own = passes.predicted(passes.Setting(count, block=block), mine)
            assert 0 < own.gain < count
    whole = passes.predicted(passes.Setting(array=4**10, block=4**10), mine)
    assert whole.gain == 1


def test_a_click_runs_the_passes_of_its_setting_and_says_what_was_predicted(mine):
    asked: list[passes.Setting] = []

    def measure(setting: passes.Setting) -> passes.Times:
        asked.append(setting)
        return passes.Times(3.0, 1.0)

    page = passes.passes_here(mine, measure, thread=Now)
    before = {shown(page)}
    for name, value in (("Passes", 16), ("Array", 4**11), ("Block", 4**7)):
        controls(page)[name].value = value
        before.add(shown(page))
    assert len(before) == 4
    click(page, "Run the passes")
    assert asked == [passes.Setting(16, 4**11, 4**7)]
    assert "Block by block is 3.00 times as fast" in result_text(page)


# measured ---------------------------------------------------------------------------------------------


def planted(**changes: Any) -> Any:
    """What measures a machine whose numbers are known, and the seconds that it was asked to take."""
    asked: list[float] = []

    def measure(ranks: int, seconds: float, run: Any) -> dict[str, Any]:
        asked.append(seconds)
        return Planted(ranks=2, **changes).raw()

    return measure, asked


def test_the_example_is_no_more_than_a_system_and_its_cores(mine):
    assert mine.machine.measured.host == "Linux x86_64, 2 cores"
    assert len(json.dumps(example_points())) < 20_000
    assert mine.own is None and "not this machine" in measured.origin_words(mine)


def test_sliders_of_the_example_each_move_a_chart(mine):
    page = measured.calibrate_here(mine, planted()[0], Now)
    by_name = controls(page)
    for name in ("Edge", "Message", "Array"):
        seen = set()
        for position in range(len(by_name[name].options)):
            by_name[name].index = position
            seen.add(shown(page))
        assert len(seen) == len(by_name[name].options)


def test_what_is_measured_takes_the_place_of_the_example_on_the_whole_page(mine):
    roofs, steps = roofline(mine), layers.step_by_layers(mine)
    controls(roofs)["Device"].value = controls(steps)["Device"].value = "measured"
    before = shown(roofs), shown(steps)
    measure, asked = planted(step=8192)
    page = measured.calibrate_here(mine, measure, Now)
    controls(page)["Seconds"].value = 4
    click(page, "Measure")
    assert asked == [4.0]
    assert "This machine," in result_text(page) and "Other programs" not in result_text(page)
    assert "From 8.19 kB on the protocol changes" in result_text(page)
    assert mine.own is mine.machine
    assert mine.machine.device.launch == pytest.approx(3e-7, rel=0.05)
    after = shown(roofs), shown(steps)
    assert all(one != other for one, other in zip(before, after, strict=True))
    assert not button(page, "Measure").disabled and button(page, "Cancel").disabled


def test_each_point_that_is_drawn_was_measured_and_the_fit_lies_in_its_band(mine, known):
    mine.learn(known.machine, known.raw[measured.WORKER])
    for view in (measured.products_view, measured.messages_view, measured.sums_view):
        data, summary = view(measured.Setting(), mine)
        band = data["fit"]
        assert np.all(np.array(band["low"]) <= np.array(band["high"]) * (1 + 1e-9))
        assert set(data["points"]["kind"]) <= set(one_step_drawings.KINDS)
        assert "the fit" in summary
    for view, what, seconds in (
        (measured.messages_view, "message", lambda x, y: y),
        (measured.products_view, measured.GEMM, lambda x, y: 2 * x**3 / y),
        (measured.sums_view, measured.SUM, lambda x, y: 3 * x / y),
    ):
        points = view(measured.Setting(), mine)[0]["points"]
        rows = zip(points["kind"], points["x"], points["y"], strict=True)
        drawn = {seconds(x, y) for kind, x, y in rows if kind != "copies"}
        measured_times = [s for p in mine.raw["points"] if p["what"] == what for s in p["seconds"]]
        assert all(np.isclose(each, measured_times, rtol=1e-9, atol=0).any() for each in drawn)


def test_a_size_that_was_not_measured_is_reported_by_its_neighbor(mine):
    data, _ = measured.messages_view(measured.Setting(message=9), mine)
    assert data["now"]["x"] == [8]


def test_others_at_work_are_reported():
    assert measured.busy_html({"others": [0.1, 0.2, 5.0]}) == ""
    assert "kept 1.2 cores busy" in measured.busy_html({"others": [1.2, 1.2, 5.0]})


def test_what_goes_wrong_is_reported_and_the_example_stays(mine):
    def fails(*_: Any) -> Any:
        raise JobError("no rank came up")

    page = measured.calibrate_here(mine, fails, Now)
    click(page, "Measure")
    assert "no rank came up" in result_text(page) and mine.own is None
    assert not button(page, "Measure").disabled


def test_a_machine_of_one_core_is_reported_that_ranks_would_wait_for_it(mine, monkeypatch):
    measure, asked = planted()
    page = measured.calibrate_here(mine, measure, Now)
    monkeypatch.setattr(measured, "cores", lambda: 1)
    click(page, "Measure")
    assert "There is one core here" in result_text(page) and asked == []


def test_a_measurement_that_is_cancelled_says_so(mine):
    def cancelled(ranks: int, seconds: float, run: Any) -> Any:
        click(page, "Cancel")
        raise JobError("all ranks were ended")

    page = measured.calibrate_here(mine, cancelled, Now)
    click(page, "Measure")
    assert "Cancelled." in result_text(page) and mine.own is None


# ranks that can be stopped ----------------------------------------------------------------------------


def test_ranks_that_end_by_themselves_give_all_that_they_printed():
    done = stoppable(threading.Event())(2, "-c", "print('h' * 20000)", patience=180.0)
    assert done.returncode == 0 and done.stderr.count("h") == 40_000  # in any order


def test_ranks_end_when_they_are_stopped_and_when_time_is_up():
    stop = threading.Event()
    stop.set()
    forever = ("-c", "import time; time.sleep(600)")
    with pytest.raises(JobError, match="cancelled"):
        stoppable(stop)(1, *forever, patience=600.0)
    with pytest.raises(TimeoutExpired):
        stoppable(threading.Event())(1, *forever, patience=0.1)


# for real ---------------------------------------------------------------------------------------------


def test_every_setting_is_another_run_on_this_machine(mine):
    runs = {
        (model, batch, ranks): here.experiment(here.Setting(model, batch, ranks))
        for model in here.MODELS.values()
        for batch in here.BATCHES
        for ranks in here.RANKS
    }
    assert len(set(map(str, runs.values()))) == len(runs)
    for (_, batch, ranks), run in runs.items():
        assert run.devices == ranks and run.global_batch == batch * ranks


def test_the_exchange_of_one_rank_is_nothing_and_its_share_falls_with_the_batch(mine):
    assert here.exchange_share(here.Setting(ranks=1), mine) == 0
    shares = [here.exchange_share(here.Setting(batch=batch), mine) for batch in here.BATCHES]
    assert shares == sorted(shares, reverse=True)


def test_a_run_takes_the_machine_as_it_was_measured_and_forgets_the_prediction_for_another(
    mine, known
):
    class Panel(here.RunHere):
        made: Any = None

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            Panel.made = self

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(here, "RunHere", Panel)
        page = here.run_one_step(mine)
    assert "Not measured on this page yet" in result_text(page) and Panel.made.machine is None
    Panel.made.found = "something"
    mine.learn(known.machine, known.raw[measured.WORKER])
    assert Panel.made.machine is known.machine and Panel.made.found is None
    assert Panel.made.experiment is not None and "as measured on this page" in result_text(page)


# what is stored ---------------------------------------------------------------------------------------


def test_the_calmest_repeats_are_kept_and_read_back_as_they_are(known):
    head, loads, *points = stored.kept(known.raw[measured.WORKER])
    assert len(head) == 2 + stored.MOST and loads[0] == "others" and "1.5" not in loads
    assert {line[0] for line in points} == set(stored.DRAWN)


def test_where_it_was_measured_is_reported_by_its_kind_only(known):
    full = replace(known.machine.measured, host="Linux x86_64, 2 cores, Some CPU 9000")
    found = replace(known, machine=replace(known.machine, measured=full))
    assert stored.nameless(found).machine.measured.host == "Linux x86_64, 2 cores"
