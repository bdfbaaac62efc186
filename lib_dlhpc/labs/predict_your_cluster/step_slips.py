"""What may have been forgotten in a learner's terms of a step, and what comes out then."""

from collections.abc import Mapping
from math import log, log2

from lib_dlhpc.labs.predict_your_cluster.hidden_cluster import Fit, Job


def step_slips(fit: Fit, job: Job, ranks: int) -> Mapping[str, list[tuple[str, float]]]:
    """Return what may have been forgotten, and what comes out then, by term."""
    rate, half, rounds = fit["rate"], fit["half"], log2(ranks)
    work, many = sum(job.products), len(job.products)
    late = fit["alpha"] + fit["jump"] * (job.gradient >= fit["step"])
    other = fit["alpha"] + fit["jump"] * (job.gradient < fit["step"])
    each, part = job.gradient * fit["beta"], job.gradient / ranks
    pieces = fit["alpha"] + fit["jump"] * (part >= fit["step"]) + part * fit["beta"]
    all_of_it = "In every round, a rank sends the whole gradient and receives another one."
    jumps = "Is this gradient below or above the size of your step?"
    doubled = "In each round, twice as many contributions are in a rank's sum as before."
    return {
        "compute": [
            ("Which rank works on which samples?", (work + many * half) / rate),
            (
                "A matmul with few samples takes as long to start as one with many.",
                (work + many * half) / ranks / rate,
            ),
            ("A small matmul does not reach the rate of a large one.", work / ranks / rate),
            ("How many matmuls have to be started?", (work / ranks + half) / rate),
        ],
        "communication": [
            (jumps, rounds * (fit["alpha"] + each)),
            (jumps, rounds * (other + each)),
            ("After how many rounds do all ranks have the sum?", late + each),
            ("After how many rounds do all ranks have the sum?", other + each),
            (all_of_it, 2 * (ranks - 1) * pieces),
            (all_of_it, rounds * (late + each / ranks)),
            (doubled, (ranks - 1) * (late + each)),
            (doubled, ranks * (late + each)),
            ("Each round is a message, which pays its own latency.", late + rounds * each),
            (
                "Each round is a message, which pays its own latency.",
                late + rounds * each + (rounds - 1) * fit["jump"] * (job.gradient >= fit["step"]),
            ),
            (
                "Each round is a message, and each is above the size of your step.",
                rounds * (fit["alpha"] + each) + fit["jump"] * (job.gradient >= fit["step"]),
            ),
            (
                "A rank sends and receives at the same time: an exchange takes as long as one message.",
                2 * rounds * (late + each),
            ),
            (
                "How often can you halve the number of ranks? That is the number of rounds.",
                log(ranks) * (late + each),
            ),
        ],
    }
