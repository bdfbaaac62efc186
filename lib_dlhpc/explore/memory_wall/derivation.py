"""Derivations of module 08: 16 bytes per weight and what ZeRO leaves, and how fast a host link must be."""

from lib_dlhpc.explore.memory_wall import outside
from lib_dlhpc.explore.memory_wall.ways import Setting, experiment
from lib_dlhpc.explore.slides.derivation import written
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.units import format_quantity as show

STATE = ("weights", "master weights", "gradients", "optimizer state")
setting = Setting()
N = float(experiment(setting).model.parameters)
RANKS = setting.gpus
levels = [16 * N, (4 + 12 / RANKS) * N, (2 + 14 / RANKS) * N, 16 * N / RANKS]
alone = outside.Setting()
link = outside.needed(alone)
forward = float(predict(outside.experiment(alone)).forward)
least = link.moved / 2 / forward


def held(zero: int) -> float:
    """Return the bytes of weights, gradients and optimizer state of a GPU, as predicted."""
    memory = predict(experiment(setting, zero=zero)).memory
    return sum(float(memory[name]) for name in STATE)


billions = N / 1e9
with_zero = ", ".join(show(each, "B") for each in levels)
half = link.moved / 2
breakeven = least / 2

DERIVATIONS = written(
    globals(), (sum(levels), sum(held(zero) for zero in range(4))), (least, link.required)
)
