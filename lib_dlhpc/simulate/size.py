"""How much a simulation plays at most: beyond it a run would be silent for hours, or fill the memory.

A row of a timeline takes some 100 B on its way, and a core plays some hundred thousand rows a second.
"""

from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment

MOST_STEPS = 100_000
MOST_RANKS = 100_000
MOST_ROWS = 20_000_000  # about 2 GB


def check_size(experiment: Experiment, steps: int) -> None:
    """Raise SpecError, with what to do, for more steps, ranks or rows than are played in minutes."""
    ranks, strategy = int(experiment.devices), experiment.strategy
    instead = "`dlhpc predict` has the closed form of any size."
    if steps > MOST_STEPS:
        raise SpecError(
            f"steps = {steps:,}: at most {MOST_STEPS:,} are played. Steps differ by their jitter alone, so a few"
            f" hundred tell as much; {instead}"
        )
    if ranks > MOST_RANKS:
        raise SpecError(
            f"{ranks:,} ranks: at most {MOST_RANKS:,} are played. Replicas do alike, so fewer nodes tell as"
            f" much; {instead}"
        )
    rows = ranks * steps * rows_of_a_step(experiment)
    if rows > MOST_ROWS:
        fewer = "steps, ranks or microbatches" if strategy.is_split else "steps or ranks"
        raise SpecError(
            f"{ranks:,} ranks and {steps:,} steps make about {rows:,} things to play, of {MOST_ROWS:,} at most."
            f" Take fewer {fewer}; {instead}"
        )


def rows_of_a_step(experiment: Experiment) -> int:
    """Return about how many rows a rank's step has."""
    strategy = experiment.strategy
    size = 4.0 * experiment.model.parameters / int(strategy.replica)
    layers = sum(1 for layer in experiment.model.layers if layer.parameters)
    buckets = min(1 + int(size / float(strategy.bucket)), layers)  # no layer is cut
    passes = 2 * int(strategy.microbatches) * int(strategy.chunks)
    return 3 + 2 * buckets + 4 * passes * strategy.is_split
