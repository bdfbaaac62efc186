"""How much a page of the explorer can simulate; the command line has wider limits (simulation/size.py)."""

import numpy as np

from lib_dlhpc.costs import BYTES, buckets
from lib_dlhpc.simulation import MOST_MESSAGES as MOST_IN_A_TERMINAL
from lib_dlhpc.simulation import message_count
from lib_dlhpc.spec.experiment import Experiment

MOST_RANKS = {"rounds": 4096, "events": 512}
MOST_SERVERS = 2048  # ranks with a parameter server, where everyone sends to everyone
MOST_ROWS = 600_000  # of a timeline
MOST_MESSAGES = 100_000  # followed one by one; one or two seconds
STEPS = (16, 4, 1)  # more of them even out the jitter
QUICK_SPLIT = 32  # ranks of a split network
QUICK_RANKS, QUICK_ROWS, QUICK_MESSAGES = 1024, 15_000, 10_000  # a tenth of a second or two


def too_much(experiment: Experiment, fidelity: str, steps: int) -> str:
    """Say why a page does not simulate this; "" where it does."""
    reason = _reason(experiment, fidelity, steps)
    if not reason:
        return ""
    ways = ["fewer nodes", "larger buckets"] + ["fewer steps"] * (steps > 1)
    ways += ["fidelity rounds"] * (fidelity == "events")
    return (
        f"Too large for this page: {reason}. Choose {', '.join(ways[:-1])} or {ways[-1]}. In a terminal,"
        f" dlhpc simulate goes up to {MOST_IN_A_TERMINAL:,} messages one by one."
    )


def _reason(experiment: Experiment, fidelity: str, steps: int) -> str:
    ranks, most, kind = int(experiment.devices), MOST_RANKS[fidelity], fidelity
    if experiment.strategy.allreduce == "parameter_server" and most > MOST_SERVERS:
        most, kind = MOST_SERVERS, f"{fidelity} with a parameter server"
    if ranks > most:
        return f"{ranks:,} ranks; this page simulates {kind} on up to {most:,}"
    if (rows := _rows(experiment, steps)) > MOST_ROWS:
        about = int(float(f"{rows:.2g}"))
        return f"a timeline of {ranks:,} ranks has about {about:,} events; this page draws up to {MOST_ROWS:,}"
    if fidelity == "events" and (sent := messages(experiment, steps)) > MOST_MESSAGES:
        return f"{sent:,} messages, each followed on its own; this page follows up to {MOST_MESSAGES:,}"
    return ""


def quick(experiment: Experiment, fidelity: str, steps: int) -> bool:
    """Whether simulating takes so little time that it may follow every move of a control."""
    few = int(experiment.devices) <= QUICK_RANKS
    return (
        few
        and _within(experiment, fidelity, steps, QUICK_ROWS, QUICK_MESSAGES)
        and not too_much(experiment, fidelity, steps)
    )


def steps_within(experiment: Experiment, fidelity: str, rows: float, sent: float) -> int:
    """Return how many steps, of STEPS, stay within this number of rows or, as events, messages; 0: none does."""
    ranks = int(experiment.devices)
    if ranks > QUICK_RANKS or too_much(experiment, fidelity, 1):
        return 0
    if experiment.strategy.is_split:  # it sends far more than is counted here
        return int(fidelity == "rounds" and ranks <= QUICK_SPLIT)
    fit = (steps for steps in STEPS if _within(experiment, fidelity, steps, rows, sent))
    return next(fit, 0)


def messages(experiment: Experiment, steps: int) -> int:
    """Return how many messages that many steps take as events; no more than a page could ever follow."""
    return message_count.messages(experiment, steps, 100 * MOST_MESSAGES)


def _within(experiment: Experiment, fidelity: str, steps: int, rows: float, sent: float) -> bool:
    few = _rows(experiment, steps) <= rows
    return few and (fidelity == "rounds" or messages(experiment, steps) <= sent)


def _rows(experiment: Experiment, steps: int) -> int:
    """Return about how many rows the timeline has: two a bucket, and forward, wait, update, input."""
    strategy = experiment.strategy
    cut = buckets(experiment.model, strategy.bucket, BYTES[strategy.precision])
    every = int(strategy.local_steps)
    whole = -(-steps // every) * every  # local steps end with an average
    return int(experiment.devices) * (2 * int(np.count_nonzero(cut.sizes)) + 4) * whole
