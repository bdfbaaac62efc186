"""What module 01 asks: the figures and the numbers of lesson.toml."""

from typing import Any

import numpy as np

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.numeric import Drawn
from lib_dlhpc.explore.one_step import here, kernels, layers, passes
from lib_dlhpc.explore.one_step.machines import Mine
from lib_dlhpc.explore.one_step.measured import calibrate_here, message_ratio
from lib_dlhpc.explore.one_step.roofline import (
    BATCHES,
    Point,
    Setting,
    device_of,
    gain,
    point,
    roof,
    roofline,
)
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.units import format_quantity as show

# FLOP per byte and TFLOP/s of the check: the end of the slope is at 10 to 52 FLOP per byte.
ASKED, PEAK = (2, 4, 8, 24, 48, 96), 15.7
mine = Mine()


def at(**changes: Any) -> Point:
    """Return a layer below the roof."""
    setting = Setting(**changes)
    return point(setting, device_of(setting, mine))


def ridge(**changes: Any) -> float:
    """Return the FLOP a byte at which the slope ends."""
    return roof(device_of(Setting(**changes), mine))[1]


def below() -> float:
    """Return how many times below the roof a narrow layer is."""
    narrow, (peak, end) = at(width=64), roof(device_of(Setting(), mine))
    return peak * min(1.0, narrow.intensity / end) / narrow.rate


def rows(**changes: Any) -> list[layers.Row]:
    """Return the layers of a step."""
    setting = layers.Setting(**changes)
    return layers.rows(setting, layers.device_of(setting, mine))


def bounds(batch: int) -> str:
    """Return the layers by what bounds them."""
    kinds: dict[str, list[str]] = {}
    for row in rows(batch=batch):
        kinds.setdefault(row.bound, []).append(row.name)
    return "; ".join(f"{bound}: {', '.join(names)}" for bound, names in kinds.items())


def three(batch: int) -> str:
    """Return the time of a step of ResNet-50 on a V100, an A100 and an H100."""
    gpus = ("v100-sxm2-16gb", "a100-sxm-40gb", "h100-sxm-80gb")
    steps = [layers.Setting("resnet50", device, batch) for device in gpus]
    seconds = [layers.step_time(step, layers.device_of(step, mine)) for step in steps]
    return ", ".join(show(each, "s") for each in seconds)


def too_big() -> str:
    """Return why 512 samples of ResNet-50 do not fit a V100."""
    step = layers.Setting("resnet50", "v100-sxm2-16gb", 512)
    return predict(layers.experiment(step, layers.device_of(step, mine))).walls[0]


EAGER = kernels.Setting()
SCORES_KEPT = EAGER._replace(attention="on")
ALL_FUSED = SCORES_KEPT._replace(fused=True)
SMALL = ALL_FUSED._replace(model="opt-125m", sequence=256, batch=1)


def moved(setting: kernels.Setting, *names: str) -> str:
    """Return the bytes of some classes of operators."""
    found = kernels.operators(setting)
    return show(sum(found[name].moved for name in names), "B")


def kernel_count(setting: kernels.Setting) -> str:
    """Return the kernels of a step."""
    return f"{kernels.total(kernels.operators(setting)).kernels:,.0f}"


def attention_bytes() -> float:
    """Return the share of a step's bytes that eager attention moves."""
    found = kernels.operators(EAGER)
    return found["attention"].moved / kernels.total(found).moved


def calls(block: int) -> str:
    """Return the calls of numpy of the default passes in blocks."""
    own = passes.Setting()
    return f"{own.array // block * own.passes:,}"


def attainable(draw: np.random.Generator) -> Drawn:
    """Return a layer of one learner, and what it reaches: under the slope or under the flat roof."""
    intensity, bandwidth = int(draw.choice(ASKED)), int(draw.integers(3, 16)) * 100
    own = {"intensity": intensity, "bandwidth": bandwidth, "peak": PEAK}
    slope = intensity * bandwidth / 1e3
    wrong = {"divided": bandwidth / intensity / 1e3}
    wrong |= {"over_the_roof": slope} if slope > PEAK else {"at_the_peak": PEAK}
    return own, min(slope, PEAK), wrong


lesson = Lesson.read(
    __file__,
    outcomes={
        "one_sample": (lambda: at().seconds * 1e6, lambda: roofline(mine)),
        "twice_the_samples": (
            lambda: layers.growth(layers.Setting(), layers.device_of(layers.Setting(), mine)),
            lambda: layers.step_by_layers(mine),
        ),
        "longer_message": (lambda: message_ratio(mine), lambda: calibrate_here(mine)),
        "attention_share": (
            lambda: 100 * kernels.time_share(EAGER),
            lambda: kernels.step_by_kernels(),
        ),
        "blocked_passes": (
            lambda: passes.predicted(passes.Setting(), mine).gain,
            lambda: passes.passes_here(mine),
        ),
        "share_of_the_allreduce": (
            lambda: 100 * here.exchange_share(here.Setting(), mine),
            lambda: here.run_one_step(mine),
        ),
    },
    numbers={
        "one_sample": lambda: show(at().seconds, "s"),
        "one_sample_faster": lambda: show(at(faster=8.0).seconds, "s"),
        "turn": lambda: next(b for b in BATCHES if at(batch=b).bound == "arithmetic"),
        "gain": lambda: gain(Setting(batch=4096), mine),
        "below": below,
        "convolution": lambda: at(layer="conv3", width=256).intensity,
        "dense": lambda: at(width=256).intensity,
        "ridge": ridge,
        "ridge_of_laptop": lambda: ridge(device="laptop-core"),
        **{f"bounds_{n}": lambda n=n: bounds(n) for n in (8, 16, 512)},
        "streamed": lambda: ", ".join(
            row.name for row in rows(model="lenet5") if row.bound == "memory-bound"
        ),
        **{f"three_{n}": lambda n=n: three(n) for n in (8, 64)},
        "too_big": too_big,
        "attention_flop": lambda: kernels.flop_share(EAGER),
        "attention_bytes": attention_bytes,
        "attention_moved": lambda: moved(EAGER, "attention"),
        "attention_fused_moved": lambda: moved(SCORES_KEPT, "attention"),
        "attention_gain": lambda: kernels.times_as_fast(EAGER, attention="on"),
        "kernels": lambda: kernel_count(SCORES_KEPT),
        "kernels_fused": lambda: kernel_count(ALL_FUSED),
        "light_moved": lambda: moved(SCORES_KEPT, "normalization", "elementwise"),
        "light_fused_moved": lambda: moved(ALL_FUSED, "normalization", "elementwise"),
        "light_gain": lambda: kernels.times_as_fast(SCORES_KEPT, fused=True),
        "gemm_share": lambda: kernels.time_share(ALL_FUSED, "GEMM"),
        "long_wall": lambda: predict(kernels.experiment(EAGER._replace(sequence=4096))).walls[0],
        "small_update": lambda: kernels.time_share(SMALL, "optimizer"),
        "small_launches": lambda: kernels.time_share(SMALL, "launches"),
        "small_a100": lambda: 1 / kernels.times_as_fast(SMALL, device="a100-sxm-40gb"),
        "array": lambda: show(passes.Setting().array, "B"),
        "block": lambda: show(passes.Setting().block, "B"),
        "cache_gain": lambda: passes.cache_gain(passes.Setting(), mine),
        "small_calls": lambda: calls(passes.BLOCKS[0]),
        "whole_calls": lambda: str(passes.Setting().passes),
    },
    draws={"attainable": attainable},
)
ask = lesson.ask
