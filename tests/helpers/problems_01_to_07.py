"""Answers of the problems of modules 01 to 07, from the numbers that their text gives, without the library.

A title: a formula, and the pieces of the text in which its numbers stand.
"""

from collections.abc import Callable
from math import log, log2, pi, sin, sqrt

Hand = tuple[Callable[..., float], *tuple[str, ...]]


def dense(batch: int) -> Callable[..., float]:
    """Return the formula of a dense layer's seconds: roofline, launch apart."""

    def seconds(
        peak: float, most: float, half: float, rate: float, launch: float, n: float
    ) -> float:
        flop, size = 2 * batch * n * n, 2 * (n * n + 2 * batch * n)
        return launch + max(size / rate, (flop + 1e6 * half) / (most / 100 * peak))

    return seconds


def fused(rate: float, launch: float, tokens: float, width: float) -> float:
    """Run three kernels forward and six backward, then one and two, byte by byte."""
    one = 2 * 2 * tokens * width
    return (9 * one - 3 * one) / rate + (9 - 3) * launch


GPU = (
    "peak of {} in 16",
    "reach {}% of",
    "matmul of {} MFLOP",
    "memory moves {},",
    "launch takes {}.",
    "has {} inputs",
)
WRITTEN = (
    "{} ranks write",
    "write {} into",
    "over {} targets of",
    "targets of {} each",
    "requests of {} one",
    "latency of {} and then",
    "bytes at {}. How",
)
LINK = "latency of {} and", "bandwidth of {};"


def ring(latency: float, rate: float, ranks: float, size: float) -> float:
    """Send round after round."""
    return sum(latency + size / ranks / rate for _ in range(2 * (int(ranks) - 1)))


def crossover(latency: float, rate: float, ranks: float) -> float:
    """Bisect the size at which both take equally long."""
    low, high = 1.0, 1e9

    def later(size: float) -> bool:
        doubling = log2(ranks) * (latency + size / rate)
        halving = 2 * log2(ranks) * latency + 2 * (ranks - 1) / ranks * size / rate
        return doubling > halving

    while high / low > 1.0001:
        middle = sqrt(low * high)
        low, high = (low, middle) if later(middle) else (middle, high)
    return low


def third_row(p: float, slow: float, short: float, fast: float, n: float) -> float:
    """Draw a line of time over bytes: its slope from the long message, its height from the short one."""
    factor = 2 * (p - 1) / p
    return factor * n / (factor * short / slow + factor / fast * (n - short))


def flushed(forward: tuple[float, ...], microbatches: float) -> float:
    """Pass each microbatch through all stages, and back in twice the time."""
    free = [0.0] * len(forward)
    for _ in range(int(microbatches)):
        ready = 0.0
        for stage, seconds in enumerate(forward):
            ready = free[stage] = max(ready, free[stage]) + seconds
    return 3 * free[-1]


def sped_up(batch: float, critical: float, times: float) -> float:
    """Return steps before over after: samples are fewest times batch plus critical batch."""
    return (batch + critical) / batch * times * batch / (times * batch + critical)


def exchanged(backward: float, buckets: float, each: float) -> float:
    """Send the buckets one by one; return what is left after backward."""
    free = 0.0
    for bucket in range(1, int(buckets) + 1):
        free = max(free, bucket * backward / buckets) + each
    return free - backward


BY_HAND: dict[str, dict[str, Hand]] = {
    "one_step": {
        "Read a data sheet": (
            lambda sparse, rate: sparse / 2 / rate,
            "about {} for tensor",
            "reach. Its memory moves {}. What",
        ),
        "Find the mistake: a faster GPU": (
            lambda n, old, new, reached, launch: (
                (launch + 2 * (n * n + 2 * n) / old)
                / (launch + 2 * (n * n + 2 * n) / (reached / 100 * new))
            ),
            "layer with {} inputs and outputs",
            "FLOP/s and {}, an",
            "FLOP/s and {}, of which",
            "of which kernels reach {}%",
            "launch takes {} on both",
        ),
        "One sample": (dense(1), *GPU),
        "1,024 samples": (dense(1024), *GPU),
        "A ridge point": (
            lambda peak, rate: peak / rate,
            "A100 has a peak of {} in",
            "bits and {}. What",
        ),
        "A message": (
            lambda latency, rate, size: latency + size / rate,
            "link has a latency of {} and",
            "and a bandwidth of {}. How",
            "message of {} take",
        ),
        "A short message": (
            lambda latency, rate, size: 100 * size / rate / (latency + size / rate),
            "link has a latency of {} and",
            "and a bandwidth of {}. How",
            "does a message of {} reach",
        ),
        "In pieces": (
            lambda latency, rate, size, pieces: (
                pieces * (latency + size / pieces / rate) / (latency + size / rate)
            ),
            "link has a latency of {} and",
            "and a bandwidth of {}. How",
            "The message of {} goes",
            "in {} equal pieces",
        ),
        "Fused neighbors": (
            fused,
            "A100 moves {} and",
            "starts a kernel in {}.",
            "of {} tokens",
            "tokens of {} numbers",
        ),
    },
    "data_parallel": {
        "Efficiency": (
            lambda f, b, u, x: 100 * (f + b + u) / (f + b + u + x),
            "forward takes {}, backward",
            "backward {}, and",
            "update {};",
            "; {} of the",
        ),
        "Latency of buckets": (
            lambda p, k, latency: k * 2 * (p - 1) * latency,
            "{} ranks exchange",
            "exchange {} buckets",
            "the latency is {}.",
        ),
        "Workers far apart": (
            lambda every, wait, work: 100 * wait / (every * work + wait),
            "every {} steps",
            "exchange takes {}, fully",
            "step takes {}. What",
        ),
        "The slowest of all": (
            lambda mean, varies, above, left: (
                100 * mean / (mean * (1 + varies / 100 * above) + left)
            ),
            "for {} ms on average",
            "deviation of {}%",
            "is {} standard deviations above",
            "(Blom). {} ms",
        ),
        "Four times as many": (
            lambda mean, varies, left, above: (
                100 * mean / (mean * (1 + varies / 100 * above) + left)
            ),
            "for {} ms on average",
            "deviation of {}%",
            "(Blom). {} ms",
            "slowest is {} standard",
        ),
        "What jitter costs": (
            lambda mean, varies, above: mean / 1e3 * varies / 100 * above,
            "for {} ms on average",
            "deviation of {}%",
            "slowest is {} standard",
        ),
        "Stale gradients": (
            lambda n: n * 2 * sin(pi / (2 * (2 * (n - 1) + 1))),
            "{} asynchronous workers",
        ),
        "Read a published table": (
            lambda batch, images, epoch, longer: (
                8 * 32 * (1 + longer / 100) * images / batch / epoch
            ),
            "GPUs with {} images per step",
            "pass over {} images",
            "images in {}, and",
            "takes {}% longer than on 8",
        ),
        "Find the mistake: all of it hidden": (
            exchanged,
            "Backward takes {} and",
            "fills {} equal",
            "of each takes {}, one",
        ),
    },
    "allreduce": {
        "A ring": (ring, *LINK, "free. {} ranks", "allreduce {} with a"),
        "Recursive doubling": (
            lambda latency, rate, p, n: log2(p) * (latency + n / rate),
            *LINK,
            "{} ranks allreduce",
            "allreduce {} with recursive",
        ),
        "The crossover": (crossover, *LINK, "doubling on {} ranks?"),
        "Out of a node": (
            lambda nodes, devices: devices * log2(nodes),
            "{} nodes of",
            "nodes of {} devices",
        ),
        "Shards out of a node": (
            lambda nodes, devices: devices * 2 * (nodes - 1) / nodes / devices,
            "same {} nodes use",
            "nodes of {} devices",
        ),
        "Through one NIC": (
            lambda nodes, devices, rate, size: (
                (devices * log2(nodes) - 2 * (nodes - 1) / nodes) * size / rate
            ),
            "same {} nodes use",
            "nodes of {} devices",
            "A NIC of {} sends",
            "a buffer of {}, how",
        ),
        "A square of ranks": (
            lambda latency, rate, x, y, n: (
                2
                * sum(
                    (each - 1) * (latency + size / each / rate)
                    for each, size in ((x, n), (y, n / x))
                )
            ),
            *LINK,
            "free. {} ×",
            "× {} ranks allreduce",
            "ranks allreduce {} on a",
        ),
        "Find the mistake: buckets": (
            lambda latency, rate, size, buckets, ranks: (
                buckets * ring(latency, rate, ranks, size / buckets)
                - ring(latency, rate, ranks, size)
            ),
            *LINK,
            "plan sums {} of",
            "gradients in {} equal",
            "another, on {} ranks",
        ),
        "Read a published table": (
            lambda p, rate, n: 2 * (p - 1) / p * n / rate,
            "allreduce on {} ranks (ml",
            "n / t: {} for",
            "for {}. How long",
        ),
        "Two rows predict a third": (
            third_row,
            "allreduce on {} ranks (ml",
            "n / t: {} for",
            "for {} and",
            "and {} for 17",
            "follows for {}? (The",
        ),
    },
    "model_parallel": {
        "A bubble": (lambda p, m: 100 * (p - 1) / m, "{} equal stages", "run {} microbatches"),
        "Interleaved": (
            lambda p, m, v: 100 * (p - 1) / v / m,
            "{} equal stages",
            "run {} microbatches with GPipe",
            "each in {} chunks",
        ),
        "Stored microbatches": (lambda p, rank: p - rank, "{} stages run", "does rank {} (counted"),
        "What a GPU sends": (
            lambda gpus, rows, width: 2 * 2 * (gpus - 1) / gpus * 2 * rows * width,
            "over {} GPUs: X",
            "X has {} rows",
            "rows of {} numbers",
        ),
        "Four times the GPUs": (
            lambda gpus, rows, width: 2 * 2 * (gpus - 1) / gpus * 2 * rows * width,
            "{} GPUs split the same",
            "X has {} rows",
            "rows of {} numbers",
        ),
        "Work per byte sent": (
            lambda gpus, width: 3 * 2 * width / (gpus - 1),
            "the {} GPUs compute per byte",
            "rows of {} numbers",
        ),
        "Weight gradients in the bubble": (
            lambda p, m, f, b, w: m * (f + b + w) + (p - 1) * (f + b - w),
            "{} equal stages run",
            "stages run {} microbatches with ZB",
            "takes {} forward, ",
            "forward, {} for gra",
            "inputs and {} for those",
        ),
        "Unequal stages": (
            lambda *each: flushed(each[:-1], each[-1]),
            "takes {} in stage 0",
            "0, {} in stage 1",
            "1, {} in stage 2",
            "2 and {} in stage 3",
            "GPipe runs {} micro",
        ),
        "Find the mistake: twice the stages": (
            lambda p, m: 100 * ((m + 2 * p - 1) / (m + p - 1) - 1),
            "{} equal stages run",
            "stages run {} microbatches, and mess",
        ),
        "Check a published table": (
            lambda published, p, m: p * m / (m + p - 1) / (2 * 1 / (1 + 2 - 1)) / published,
            "table 2) report {} for",
            "for {} accelerators with",
            "accelerators with {} microbatches:",
        ),
    },
    "hybrid_parallel": {
        "Microbatches of a replica": (
            lambda gpus, t, p, batch: 100 * (p - 1) / (batch / (gpus / t / p)),
            "{} GPUs run",
            "run tensor {} ×",
            "pipeline {}, the",
            "batch of {} sequences",
        ),
        "Half of the sequences": (
            lambda gpus, t, p, batch: 100 * (p - 1) / (batch / 2 / (gpus / t / p)),
            "The {} GPUs of problem 1",
            "384 GPUs run tensor {} ×",
            "pipeline {}, the rest",
            "rest data, with a batch of {} sequences",
        ),
        "A wider kernel": (
            lambda channels, edge: 2 * 2 * 2 * 4 * channels * edge,
            "of {} channels",
            "and {}² points",
        ),
        "A halo": (
            lambda channels, edge: 2 * 2 * 4 * channels * edge,
            "of {} channels",
            "and {}² points",
        ),
        "Its share": (
            lambda edge, slabs: 100 * 2 / (edge / slabs),
            "and {}² points",
            "into {} slabs",
        ),
        "Two replicas instead of four": (
            lambda gpus, p, batch, t: 100 * (p - 1) / (batch / (gpus / t / p)),
            "{} GPUs run tensor 2",
            "tensor 2 × pipeline {}, with",
            "with a batch of {} sequences, one per microbatch. You",
            "change to tensor {},",
        ),
        "An NVLink domain": (
            lambda gpus, nic, rack: ((gpus - 8) / gpus / nic) / ((gpus - 1) / gpus / rack),
            "over {} GPUs, and",
            "NIC of {} GB/s",
            "of it, at {} GB/s",
        ),
        "Read a published table": (
            lambda rate, n, gpus, tokens: 8 * n * tokens * 1e18 / gpus / rate,
            "report {} per GPU",
            "GPT of {} billion",
            "parameters on {} A100",
            "train on {} billion tokens",
        ),
        "Find the mistake: a utilization": (
            lambda rate, peak: 100 * rate * 6 / 8 / peak,
            "divides the {} of problem",
            "an A100, {}, and",
        ),
    },
    "large_batch": {
        "A first step of LARS": (
            lambda w, g, rate, trust: rate * (trust * w / g) * g,
            "|w| = {} and",
            "|g| = {}. LARS",
            "rate {} and",
            "coefficient {}, without",
        ),
        "A later step of LARS": (
            lambda w, g, rate, trust: rate * (trust * w / g) * g,
            "this layer is {} and |g|",
            "only {}; learning",
            "rate {} and",
            "coefficient {}, without",
        ),
        "Below the critical batch": (
            lambda critical, batch: 100 * (1 - (1 + critical / batch / 2) / (1 + critical / batch)),
            "critical batch is {}.",
            "from {} samples",
        ),
        "Beyond the critical batch": (
            lambda critical, batch: 100 * (1 - (1 + critical / batch / 2) / (1 + critical / batch)),
            "critical batch is {}.",
            "from {} samples",
        ),
        "What the rate repairs": (
            lambda scaled, tuned, lars: 100 * (tuned - scaled) / (lars - scaled),
            "accuracy of {}%, SGD",
            "tuned rate {}%",
            "LARS {}%. What",
        ),
        "A sum for a mean": (
            lambda ranks, rate, g: ranks * rate * g - rate * g,
            "{} ranks sum",
            "rate of {}, LARS",
            "|g| = {}. LARS",
        ),
        "Find the mistake: as many GPUs as samples": (
            sped_up,
            "trains with {} samples",
            "critical batch is {}. A plan",
            "plan uses {} times",
        ),
        "What the plan costs": (
            lambda batch, critical, times: times / sped_up(batch, critical, times),
            "trains with {} samples",
            "critical batch is {}. A plan",
            "plan uses {} times",
        ),
        "Read a published table": (
            lambda few, batch, flat, steep: (steep - flat) / 3 / (flat - few) * log2(8192 / batch),
            "error of {}% for",
            "for a batch of {},",
            ", {}% for 8,192",
            "and {}% for 65,536",
        ),
    },
    "io_bottleneck": {
        "Find the mistake: a cache of a share": (lambda r: 1 - log(1 - r), "share r = {} of all"),
        "Read published numbers": (
            lambda files, size, epochs, hours: files * 1e6 * epochs * size / hours,
            "read {} million",
            "files of {} on average",
            "each of {} epochs",
            "in about {} altogether",
        ),
        "Files per second": (
            lambda ops, rate, size: min(ops / 3, rate / size),
            "performs {} metadata",
            "reads {}. A sample",
            "file of {}, which",
        ),
        "An LRU cache": (lambda r: 100 * (r + (1 - r) * log(1 - r)), "r = {} of it fits"),
        "How much a node holds": (
            lambda size, nodes: size / nodes,
            "copy of {} of images",
            "over {} nodes, each",
        ),
        "A checkpoint in one file": (
            lambda ranks, size, stripes, each, request, latency, rate: (
                size / min(stripes * each, ranks / (latency / request + 1 / rate))
            ),
            *WRITTEN,
        ),
        "Longer requests": (
            lambda longer, ranks, size, stripes, each, request, latency, rate: (
                size / min(stripes * each, ranks / (latency / longer + 1 / rate))
            ),
            "write requests of {} instead",
            *WRITTEN,
        ),
        "Every target": (
            lambda targets, longer, ranks, size, stripes, each, request, latency, rate: (
                size
                / min(stripes * each, ranks / (latency / longer + 1 / rate))
                / (size / min(targets * each, ranks / (latency / longer + 1 / rate)))
            ),
            "striped over {} targets instead",
            "write requests of {} instead",
            *WRITTEN,
        ),
        "Remote reads": (lambda nodes: 100 * (nodes - 1) / nodes, "evenly over {} nodes. What"),
    },
}
