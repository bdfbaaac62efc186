"""Limits on the size of a simulation: beyond them a run takes hours, or exhausts memory.

A timeline row takes about 100 B while it is built, and a core simulates about 100,000 rows a second.
"""

from lib_dlhpc.errors import SpecError
from lib_dlhpc.simulation.message_count import RATE, messages
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show

MOST_STEPS = 100_000
MOST_RANKS = 100_000
MOST_ROWS = 20_000_000  # about 2 GB
MOST_MESSAGES = 5_000_000  # followed one by one; about four minutes
COUNTED = 100  # times as many are counted to estimate their duration


def check_size(experiment: Experiment, steps: int, with_rows: bool = True) -> None:
    """Raise SpecError, with advice, for more steps, ranks or rows than are simulated in minutes."""
    ranks, strategy = int(experiment.devices), experiment.strategy
    instead = "`dlhpc predict` has the closed form of any size."
    if steps > MOST_STEPS:
        raise SpecError(
            f"steps = {steps:,}: at most {MOST_STEPS:,} are simulated. Steps differ only in jitter, so a few"
            f" hundred suffice; {instead}"
        )
    if ranks > MOST_RANKS:
        raise SpecError(
            f"{ranks:,} ranks: at most {MOST_RANKS:,} are simulated. Replicas behave alike, so fewer nodes"
            f" suffice; {instead}"
        )
    rows = ranks * steps * rows_of_a_step(experiment) if with_rows else 0
    if rows > MOST_ROWS:
        fewer = "steps, ranks or microbatches" if strategy.is_split else "steps or ranks"
        raise SpecError(
            f"{ranks:,} ranks and {steps:,} steps make about {rows:,} events; the limit is {MOST_ROWS:,}."
            f" Take fewer {fewer}; {instead}"
        )


def rows_of_a_step(experiment: Experiment) -> int:
    """Return about how many rows a rank's step has."""
    strategy = experiment.strategy
    size = 4.0 * experiment.model.parameters / int(strategy.holders)
    layers = sum(1 for layer in experiment.model.layers if layer.parameters)
    buckets = min(1 + int(size / float(strategy.bucket)), layers)  # no layer is cut
    passes = 2 * int(strategy.microbatches) * int(strategy.chunks)
    return 3 + 2 * buckets + 4 * passes * strategy.is_split


def check_messages(
    experiment: Experiment, fidelity: str, steps: int, most: int = MOST_MESSAGES
) -> int:
    """Return how many messages are followed one by one; 0 in rounds, but for asynchronous updates.

    Raises SpecError, with how long it would take and what to do, for more than `most`.
    """
    asynchronous = experiment.strategy.update == "asynchronous"
    if fidelity == "rounds" and not asynchronous:
        return 0
    sent = messages(experiment, steps, COUNTED * most)
    if sent > most:
        counted = f"{sent:,}" if sent <= COUNTED * most else f"more than {COUNTED * most:,}"
        ways = [] if asynchronous else ["--fidelity rounds, which simulates messages in bulk"]
        ways += ["fewer ranks", "fewer steps"] if steps > 1 else ["fewer ranks"]
        ways += ["larger buckets", "--message-limit N (simulate: message_limit) for a higher limit"]
        lasts = show(sent / RATE, "s") + " or more" * (sent > COUNTED * most)
        raise SpecError(
            f"fidelity {fidelity}: {counted} messages to follow one by one, which takes about {lasts};"
            f" the limit is {most:,}. Choose {', '.join(ways[:-1])}, or {ways[-1]}."
        )
    return sent
