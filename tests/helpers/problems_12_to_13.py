"""Answers of the problems of modules 12 and 13, from the numbers that their text gives, without the library.

A title: a formula, and the pieces of the text in which its numbers stand.
"""

from collections.abc import Callable

Hand = tuple[Callable[..., float], *tuple[str, ...]]


def bubble(stages: float, microbatches: float, forward: float, backward: float) -> float:
    """Return the idle share of a stage of 1F1B: the first and the last microbatch pass all others."""
    busy = microbatches * (forward + backward)
    idle = (stages - 1) * forward + (stages - 1) * backward
    return 100 * idle / (busy + idle)


def kept_ring(width: float, keys: float, gpus: float, rate: float, link: float) -> float:
    """Find the tokens of a rank at which computing a half-masked block takes as long as passing on keys and values."""
    tokens = 1.0
    while 2 * 2 * tokens * tokens * width / 2 / rate < 2 * 2 * tokens * keys / link:
        tokens *= 1.0001
    return gpus * tokens


def long_document(
    whole: float, piece: float, billions: float, layers: float, width: float
) -> float:
    """Return the wait in % for a replica that attends over one document, pair by pair: half of them, 12 FLOP each."""
    matmul = 6 * billions * 1e9 * whole
    scores = [
        12 * layers * width * many * own**2 / 2
        for many, own in ((whole / piece, piece), (1, whole))
    ]
    packed, single = (matmul + each for each in scores)
    return 100 * (single - packed) / single


BY_HAND: dict[str, dict[str, Hand]] = {
    "language_model": {
        "Muon on sharded state": (
            lambda weights, matrices: 100 * 2 * matrices / (2 + 2) / weights,
            "has {} billion weights",
            "which {} billion are",
        ),
        "One long document": (
            long_document,
            "one sequence of {} tokens per",
            "documents of {} tokens, and",
            "of {} billion weights. In",
            "each of {} layers",
            "layers, {} wide. All",
        ),
        "A bubble": (
            bubble,
            "of {} equal stages",
            "runs {} microbatches",
            "takes {} forward",
            "and {} backward",
        ),
        "FSDP over all nodes": (
            lambda weights, units, replicas, rate, us: (
                3 * units * (replicas - 1) * us * 1e-6
                + 3 * 2 * weights * 1e9 / 8 * (replicas - 1) / replicas / rate / 1e9
            ),
            "{} billion parameters in",
            "parameters in {} units",
            "; {} replicas shard",
            "NIC carries {} GB/s, and a",
            "latency of {} µs",
        ),
        "A hidden ring": (
            lambda width, keys, gpus, rate, link: kept_ring(
                width, keys, gpus, 1e12 * rate, 1e9 * link
            ),
            "h = {} numbers",
            "h_kv = {} each",
            "{} GPUs in a ring",
            "F = {} TFLOP",
            "W = {} GB",
        ),
        "MFU": (
            lambda flop, gpus, peak, sequences, step: (
                100 * 1e15 * flop * sequences / gpus / step / (1e12 * peak)
            ),
            "takes {} PFLOP",
            "step {} GPUs",
            "peak of {} TFLOP",
            "train on {} sequences",
            "sequences in {}. What",
        ),
        "Frozen in four bits": (
            lambda blocks, block, others: (
                1e9 * (blocks * (4 + (8 + 32 / 256) / block) / 8 + 2 * others)
            ),
            "stores the {} billion",
            "every {} weights, and",
            "other {} billion",
        ),
        "Tokens to experts": (
            lambda hidden, copies, ranks, nic, tokens: (
                3 * 2 * copies * 2 * hidden * tokens * (1 - 8 / ranks) / (1e9 * nic)
            ),
            "token, {} numbers",
            "to {} experts and",
            "on {} GPUs in nodes of 8",
            "carries {} GB/s; copies",
            "the {} tokens of a GPU",
        ),
        "On twice as many GPUs": (
            lambda now, before: 100 * ((1 - 8 / now) / (1 - 8 / before) - 1),
            "over {} GPUs instead",
            "on {} GPUs in nodes of 8",
        ),
        "Experts in an NVLink domain": (
            lambda ranks, link, rate: (
                (3 * 2 * 2) / (3 * 2 * 4) * (1 - 1 / ranks) * 1e15 * rate / (1e9 * link)
            ),
            "among {} GPUs",
            "joins at {} GB/s",
            "computes at {} PFLOP",
        ),
        "FSDP behind": (
            lambda speed, gpus, weights, link: (
                3 * 2 * 1e9 * weights / gpus / (1e9 * link) * gpus * speed
            ),
            "trains at {} tokens",
            "replicas of {} GPUs: for",
            "eighth of the {} billion",
            "bits, at {} GB/s. How",
        ),
        "Read a published table": (
            lambda fast, short, slow, long_, weights, pairs, layers, wide: (
                100
                * (slow * (6 * 1e9 * weights + pairs * layers * wide * long_))
                / (fast * (6 * 1e9 * weights + pairs * layers * wide * short))
            ),
            "512 H100 {} tokens",
            "sequences of {} tokens, ",
            "tokens, {} with",
            "with {}. Training",
            "each of {} billion weights",
            "it counts {} for each token",
            "each of {} layers",
            "layers, {} wide",
        ),
        "Find the mistake: half the bits": (
            lambda bf16, fp8: 2 * fp8 - bf16 + (bf16 - fp8) / 2,
            "takes {} in bf16",
            "and {} in fp8",
        ),
    },
    "serving": {
        "Read a published table": (
            lambda one, many, gpus: (gpus / many - 1 / one) / (gpus - 1),
            "lists {} tokens",
            "A100, and {} on",
            " on {}, tensor-parallel. Suppose",
        ),
        "Find the mistake: a cache for each rank": (
            lambda numbers, turned, layers, gpus, tokens: (
                2 * (numbers + turned) * layers * gpus * tokens
            ),
            "vector of {} numbers",
            "and {} rotated",
            "its {} layers; all",
            "over {} tensor-parallel GPUs and",
            "sequence of {} tokens really",
        ),
        "Bytes of a cache": (
            lambda layers, heads, size, tokens: 2 * layers * heads * size * 2 * tokens,
            "has {} layers",
            "with {} heads",
            "values, {} numbers",
            "sequence of {} tokens",
        ),
        "What a token waits for": (
            lambda rate, weights, step: 100 * weights / rate / step,
            "GPU reads {} from",
            "reads {} of weights",
            "takes {}. If",
        ),
        "Twice as many drafts": (
            lambda plain, drafts, accepted, guessing, checking: (
                (1 - accepted ** (2 * drafts + 1)) / (1 - accepted) * plain / (guessing + checking)
            ),
            "a token in {}. Now",
            "drafts {} tokens before",
            "probability a = {}, provided",
            "many drafts take {}, and",
            "verifies them in {}; the",
        ),
        "Harder text": (
            lambda plain, drafts, guessing, checking, accepted: (
                (1 - accepted ** (drafts + 1)) / (1 - accepted) * plain / (guessing + checking)
            ),
            "a token in {}. Now",
            "drafts {} tokens before",
            "step, in {} in all",
            "them in {}. A draft",
            "with probability {}. How",
        ),
        "Drafts": (
            lambda plain, drafts, guessing, checking, accepted: (
                (1 - accepted ** (drafts + 1)) / (1 - accepted) * plain / (guessing + checking)
            ),
            "a token in {}. Now",
            "drafts {} tokens before",
            "step, in {} in all",
            "them in {}. A draft",
            "probability a = {}, provided",
        ),
        "Little's law": (lambda rate, held: held / rate, "{} requests", "and {} are in"),
        "What sparse attention reads": (
            lambda latent, chosen, key, tokens: latent * tokens / (key * tokens + latent * chosen),
            "reads {} numbers of each earlier",
            "of only {} tokens",
            "reads {} other numbers",
            "token after {} others",
        ),
        "A million tokens": (
            lambda gpus, price, rate: 1e6 / rate * gpus * price / 3600,
            "{} GPUs at",
            "${} an hour",
            "generate {} tokens",
        ),
        "A block at once": (
            lambda tokens, passes, decode, fill: tokens / passes * decode / fill,
            "block of {} tokens in",
            "tokens in {} passes",
            "sequences, they take {} and",
            "and {}. How many times as fast as by",
        ),
        "One long thought, or several": (
            lambda tokens, one, each, several: tokens / each * one / several,
            "may write {} tokens about",
            "decode step takes {}; in",
            "chains of {} tokens each",
            "chains it takes {}. How",
        ),
        "Experts over many GPUs": (
            lambda layers, experts, width, inner, gpus, copies: (
                layers * (experts + copies) / gpus * 3 * width * inner
            ),
            "has {} layers of",
            "layers of {} experts",
            "matrices of {} ×",
            " × {} numbers",
            "group of {} GPUs",
            "copy of {} experts",
        ),
        "Windows": (
            lambda layers, heads, size, every, window, tokens: (
                2 * heads * size * 2 * (layers / every * tokens + layers * (1 - 1 / every) * window)
            ),
            "of {} layers has 8 heads",
            "layers has {} heads",
            "values, {} numbers each, 2 bytes per number. One",
            "layer in {} attends",
            "last {}. How",
            "sequence of {} tokens take?",
        ),
    },
}
