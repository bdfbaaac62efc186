"""What may have been forgotten in a learner's terms of a step, and what comes out then."""

from collections.abc import Mapping
from math import log, log2

from lib_dlhpc.labs.predict_your_cluster.hidden_cluster import Fit, Job
from lib_dlhpc.sentences import sentences

say = sentences(__file__)


def step_slips(fit: Fit, job: Job, ranks: int) -> Mapping[str, list[tuple[str, float]]]:
    """Return what may have been forgotten, and what comes out then, by term."""
    rate, half, rounds = fit["rate"], fit["half"], log2(ranks)
    work, many = sum(job.products), len(job.products)
    late = fit["alpha"] + fit["jump"] * (job.gradient >= fit["step"])
    other = fit["alpha"] + fit["jump"] * (job.gradient < fit["step"])
    each, part = job.gradient * fit["beta"], job.gradient / ranks
    pieces = fit["alpha"] + fit["jump"] * (part >= fit["step"]) + part * fit["beta"]
    return {
        "compute": [
            (say.own_samples, (work + many * half) / rate),
            (say.start_up, (work + many * half) / ranks / rate),
            (say.small_matmul, work / ranks / rate),
            (say.all_start_ups, (work / ranks + half) / rate),
        ],
        "communication": [
            (say.jump, rounds * (fit["alpha"] + each)),
            (say.jump, rounds * (other + each)),
            (say.how_many_rounds, late + each),
            (say.how_many_rounds, other + each),
            (say.whole_gradient, 2 * (ranks - 1) * pieces),
            (say.whole_gradient, rounds * (late + each / ranks)),
            (say.doubled, (ranks - 1) * (late + each)),
            (say.doubled, ranks * (late + each)),
            (say.latency_of_each, late + rounds * each),
            (
                say.latency_of_each,
                late + rounds * each + (rounds - 1) * fit["jump"] * (job.gradient >= fit["step"]),
            ),
            (
                say.jump_of_each,
                rounds * (fit["alpha"] + each) + fit["jump"] * (job.gradient >= fit["step"]),
            ),
            (say.both_ways, 2 * rounds * (late + each)),
            (say.halvings, log(ranks) * (late + each)),
        ],
    }
