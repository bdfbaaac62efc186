"""Derivations of module 08: 16 bytes per weight and what ZeRO leaves, and how fast a host link must be."""

from lib_dlhpc.explore.memory_wall import outside
from lib_dlhpc.explore.memory_wall.ways import Setting, experiment
from lib_dlhpc.explore.slides.derivation import Example, written
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


DERIVATIONS = written(
    __file__,
    Example(
        f"{N / 1e9:.2f} billion parameters, {RANKS} GPUs: {', '.join(show(each, 'B') for each in levels)} with"
        " ZeRO 0 to 3. Activations come on top.",
        sum(levels),
        sum(held(zero) for zero in range(4)),
    ),
    Example(
        f"GPT-2 of 1.5 billion parameters, batch {alone.batch}: {show(link.moved / 2, 'B')} in {show(forward, 's')} are"
        f" {show(least, 'B/s')}; from about {show(least / 2, 'B/s')} on, offloading beats recomputation.",
        least,
        link.required,
    ),
)
