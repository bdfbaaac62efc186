"""Answers of the problems of modules 08 to 11, from the numbers that their text gives, without the library.

A title: a formula, and the pieces of the text in which its numbers stand.
"""

from collections.abc import Callable
from math import ceil, exp, sqrt

Hand = tuple[Callable[..., float], *tuple[str, ...]]


def daly(mtbf: float, save: float, restart: float, train: float) -> float:
    """Return Daly's goodput, in percent."""
    return 100 * train / (mtbf * exp(restart / mtbf) * (exp((train + save) / mtbf) - 1))


def erlang(nodes: float, often: float, repair: float, spares: int) -> float:
    """Walk up the states of a birth-death process, 0 to spares + 1 nodes in repair."""
    weights = [1.0]
    for failed in range(1, spares + 2):
        weights.append(weights[-1] * nodes / often / (failed / repair))
    return weights[-1] / sum(weights)


SPARE = "of its {} nodes", "once in {} days and", "repair for {} day"
CHECKED = "error once in {} days", "check of {} detects"


def checked(days: float, check: float, every: float) -> float:
    """Return the goodput of intervals that are repeated until none has an error."""
    clean = exp(-every / (86400 * days))
    return 100 * every * clean / (every + check)


def optimal(gpus: float, peak: float, days: float, mfu: float, *law: float) -> float:
    """Search the size of the least loss."""
    a, alpha, b, beta = law
    budget = gpus * peak * mfu / 100 * days * 86400 / 6
    sizes = [1e8 * 1.0005**k for k in range(16000)]
    return min(sizes, key=lambda n: a / n**alpha + b / (budget / n) ** beta) / 1e9


BY_HAND: dict[str, dict[str, Hand]] = {
    "memory_wall": {
        "Weights and their state": (lambda n: (2 + 2 + 3 * 4) * n, "has {} weights"),
        "Offloading, hidden": (
            lambda step, share, moved: moved / 2 / (step * share / 100),
            "takes {},",
            ", {}% of it",
            "moves {}: half",
        ),
        "ZeRO 1": (lambda n, gpus: 12 * n / gpus, "has {} weights", "trains on {} replicas"),
        "ZeRO 2": (
            lambda n, gpus: 2 * n + (2 + 12) * n / gpus,
            "has {} weights",
            "same {} replicas use ZeRO 2",
        ),
        "What ZeRO 3 saves": (
            lambda n, gpus: (2 + 2 + 12 / gpus) * n - 16 / gpus * n,
            "has {} weights",
            "of the {} GPUs with ZeRO 3",
        ),
        "Selective recomputation": (
            lambda a, s, h: 100 * (5 * a * s / h) / (34 + 5 * a * s / h),
            "a = {} heads",
            "s = {} tokens",
            "h = {} features",
        ),
        "The state of adapters": (
            lambda blocks, wide, queries, keys, rank: (
                (2 + 3 * 4) * blocks * rank * ((wide + queries) + (wide + keys))
            ),
            "has {} blocks",
            "turn {} features",
            "into {} numbers of queries",
            "and {} of values",
            "of rank {}: one",
        ),
        "Muon": (
            lambda every, tables: 1e9 * ((2 + 2 + 4 + 4) * every + 4 * tables),
            "has {} billion weights",
            "AdamW updates {} billion",
        ),
        "Find the mistake: a share of everything": (
            lambda each, shards: (2 + 2 + (each - 4) / shards) / (each / shards),
            "precision, {} of weights",
            "ZeRO 1 over {} replicas. To",
        ),
    },
    "failures": {
        "Young's interval": (
            lambda nodes, days, save: sqrt(2 * save * 86400 * days / nodes),
            "{} nodes, each",
            "once in {} days; a",
            "checkpoint takes {}. Which",
        ),
        "Goodput": (daly, "M = {}. A checkpoint", "C = {}, a", "R = {}, and", "τ = {}. In"),
        "Four times the machine": (
            lambda mtbf, save, few, many: sqrt(2 * save * mtbf * few / many),
            "M = {}. A checkpoint",
            "still takes {}. What",
            "grows from {} nodes",
            "nodes to {}, each",
        ),
        "A copy": (
            lambda size, gpus, stall: size / gpus / stall,
            "node has {} of",
            "on its {} GPUs",
            "stalls for {}. How",
        ),
        "One spare": (lambda *pool: 100 * erlang(*pool, spares=1), *SPARE),
        "Two spares": (lambda *pool: 100 * erlang(*pool, spares=2), *SPARE),
        "What spares cost": (
            lambda nodes, often, repair, alone: (
                alone * (1 - erlang(nodes, often, repair, spares=2)) * nodes / (nodes + 2)
            ),
            *SPARE,
            "goodput of {}%",
        ),
        "When to check": (lambda days, check: sqrt(check * 86400 * days), *CHECKED),
        "Goodput with checks": (checked, *CHECKED, "check every {} of"),
        "A faster check": (lambda days, check: sqrt(check / 4 * 86400 * days / 4), *CHECKED),
        "Read published numbers": (
            lambda gpus, every, days, planned, fewer: days / (every - planned) * gpus / fewer,
            "trained on {} GPUs",
            "2024): {} interruptions",
            "interruptions in {}, of",
            "which {} were planned",
            "train on {} of these",
        ),
        "Find the mistake: shorter than the MTBF": (
            lambda job, mtbf, again: mtbf * exp(again / mtbf) * (exp(job / mtbf) - 1),
            "job trains for {}, on",
            "fails once in {}; a",
            "restart takes {}. A plan",
        ),
    },
    "energy_planning": {
        "Find the mistake: watts for joules": (
            lambda host, busy, idle, limit: (
                100
                * (
                    1
                    - (limit + host)
                    / (busy + host)
                    * ((0.7 * (busy - idle)) / (limit - idle - 0.3 * (busy - idle))) ** 0.25
                )
            ),
            "switches draws {} W",
            "draws {} W when",
            "computes, {} W when it is idle",
            "limit of {} W",
        ),
        "Read a published table": (
            lambda mwh, watts, pue, gpus: mwh * 1e6 / (watts * pue * gpus) * 3600,
            "report {} MWh",
            "GPU-hours at {} W",
            "PUE of {}. For",
            "long do {} GPUs",
        ),
        "A power limit": (
            lambda busy, idle, limit: (
                100 * (((busy - idle) * 0.7 / (limit - idle - 0.3 * (busy - idle))) ** 0.25 - 1)
            ),
            "draws {} W",
            "computes, {} W when it is idle",
            "limit of {} W",
        ),
        "Time to accuracy": (
            lambda epochs, images, batch, step: epochs * ceil(images / batch) * step,
            "needs {} epochs",
            "epochs of {} images",
            "batch of {}; a",
            "step takes {}. How",
        ),
        "Energy of a facility": (
            lambda hours, watts, pue: hours * watts * pue / 1e6,
            "took {} GPU",
            "hours at {} W",
            "PUE of {}. How",
        ),
        "Which size?": (
            lambda gpus, peak, days, mfu, *law: optimal(gpus, 1e12 * peak, days, mfu, *law),
            "{} GPUs with a peak",
            "peak of {} TFLOP",
            "for {} days",
            "MFU of {}%",
            "E + {} / N",
            "N^{} +",
            "+ {} / D",
            "D^{} (",
        ),
        "No swing at all": (
            lambda high, long, low, short: 100 * (high - low) * short / (high * long + low * short),
            "draws {} MW while its",
            "compute, for {},",
            "and {} MW",
            "exchange, for {};",
        ),
        "A longer step": (
            lambda high, long, low, short, floor: (
                100 * (floor / 100 * high - low) * short / (high * 2 * long + low * short)
            ),
            "draws {} MW while its",
            "compute, for {},",
            "and {} MW",
            "exchange, for {};",
            "floor of {}%",
        ),
        "A floor": (
            lambda high, long, low, short, floor: (
                100 * (floor / 100 * high - low) * short / (high * long + low * short)
            ),
            "draws {} MW while its",
            "compute, for {},",
            "and {} MW",
            "exchange, for {};",
            "floor of {}%",
        ),
    },
    "traces": {
        "Load balance": (lambda *each: 100 * sum(each) / len(each) / max(each),),
        "The factors": (
            lambda *each: 100 * each[0] * each[1] * each[2],
            "balance {}, serial",
            "serialization {}, tr",
            "transfer {}. For",
        ),
        "An ideal network": (lambda transfer: 100 * (1 - transfer), "transfer {}. For"),
        "Which side is the bottleneck?": (
            lambda produce, consume, batches: (
                batches * max(produce, consume) + min(produce, consume)
            ),
            "batch takes {} to produce",
            "and {} to train",
            "there are {} batches",
        ),
        "Samples that are waited for": (
            lambda produce, consume, batches: batches * produce - (batches - 1) * consume,
            "batch takes {} to produce",
            "and {} to train",
            "there are {} batches",
        ),
        "A shorter simulation": (
            lambda produce, consume, batches: (
                batches * max(produce, consume) + min(produce, consume)
            ),
            "a batch takes {} to produce, and as",
            "and {} to train",
            "there are {} batches",
        ),
        "Nobody in the way": (
            lambda serialization, run: serialization * run,
            "serialization {}, tr",
            "The run of problem 2 takes {}. Suppose",
        ),
        "Both sides vary": (
            lambda each, varies, depth, walls: (
                (varies / 100 * each) ** 2 / (depth * each + walls * 2**0.5 * varies / 100 * each)
            ),
            "training on it take {} each",
            "independently by {}%",
            "buffer holds {} batches",
            "D p + {} σ",
        ),
        "What balance would save": (lambda *each: sum(each[:4]) / 4 / max(each[:4]) * each[4],),
        "Find the mistake: a faster network": (
            lambda outside, run, transfer, times: (
                run * ((1 - 1 / times) * outside / 100 - (1 - transfer))
            ),
            "not compute for {}% of",
            "In a run of {}, ranks",
            "efficiency is {}. A plan",
            "network {} times as fast",
        ),
    },
}
