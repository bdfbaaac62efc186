"""Exam questions of module 03, allreduce."""

from math import log2

from lib_dlhpc.explore.allreduce.charts import name_of
from lib_dlhpc.explore.allreduce.nodes import buffers_out
from lib_dlhpc.explore.allreduce.rounds import Example
from lib_dlhpc.explore.allreduce.sizes import Flat, crossover, winners
from lib_dlhpc.prediction.collectives import ALGORITHMS
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.questions import Question


def seconds(algorithm: str, size: float, setting: Flat) -> float:
    """Return the price of an allreduce."""
    return float(ALGORITHMS[algorithm](size, setting.network).total)


def times(algorithm: str, other: str, size: float, setting: Flat) -> float:
    """Return how many times as long as another an algorithm takes."""
    return seconds(algorithm, size, setting) / seconds(other, size, setting)


def rounds(algorithm: str, ranks: int, elements: int) -> int:
    """Return the rounds of a schedule."""
    return len(tuple(Example(algorithm, ranks, elements).plan))


SMALL = Flat()
FEW = Flat(ranks=1024, latency=2e-6, bandwidth=100e9 / 8, reduction=1e12)
TWICE = FEW._replace(bandwidth=200e9 / 8)
saved = 100 * (1 - seconds("ring", 64e3, TWICE) / seconds("ring", 64e3, FEW))
NO_BYTES = Flat(ranks=256)
LONG = Flat(ranks=32, latency=2e-6, bandwidth=100e9 / 8, reduction=1e12)
PAIR, MANY = Flat(ranks=2), Flat(ranks=256)
crossing = crossover(64, 5e-6, 25e9 / 8)
fastest = winners(SMALL.network)[0].algorithm

QUESTIONS = [
    Question(
        "short message",
        "32 ranks allreduce 1 kB on a cluster with a latency of 10 µs and 2 Gb/s. Which algorithm is the fastest?",
        name_of(fastest),
        {
            name_of("ring"): "Ring is the best allreduce.",
            name_of("rabenseifner"): "The fewest bytes win at any size.",
            name_of("binomial"): "A tree is fast because it has lg p levels.",
        },
        "With so few bytes the number of rounds decides, and it has the fewest: lg p, each of the whole buffer.",
    ),
    Question(
        "rounds of a ring",
        "A ring of 8 ranks. After how many rounds does every rank have the sum?",
        f"{rounds('ring', 8, 8)}",
        {
            f"{rounds('ring', 8, 8) // 2}": "The all-gather comes for free.",
            f"{log2(8):.0f}": "Every collective takes lg p rounds.",
            f"{8 * (8 - 1)}": "Rounds are messages.",
        },
        "p - 1 rounds of reduce-scatter and p - 1 of all-gather.",
    ),
    Question(
        "twice the bandwidth",
        "A ring allreduces buckets of 64 kB on 1,024 ranks, 2 µs, 100 Gb/s. You double the bandwidth. By how"
        " many percent does the exchange"
        " get shorter?",
        f"{saved:.1f} %",
        {
            f"{100 * (1 - 100 / 200):.1f} %": "Bandwidth is what matters.",
            f"{100 * (1 - (100 / 200) ** 0.5):.1f} %": "Latency and bandwidth have equal parts.",
            f"{100 * (1 - 100 / 200) / 2:.1f} %": "Half of the rounds profit.",
        },
        "2 (p - 1) rounds pay the latency; 64 kB are a small part of that.",
    ),
    Question(
        "latency alone",
        "256 ranks, a message so short that only latency counts. How many times as long as Rabenseifner does a"
        " ring take?",
        f"{times('ring', 'rabenseifner', 0.0, NO_BYTES):.0f}",
        {
            f"{times('ring', 'rabenseifner', 1e9, LONG._replace(ranks=256)):.0f}": (
                "Both move the same bytes, so they take equally long."
            ),
            f"{rounds('ring', 256, 256)}": "Rabenseifner takes one round.",
            f"{log2(256):.0f}": "A ring takes lg p times as many rounds.",
        },
        "2 (p - 1) rounds over 2 lg p.",
    ),
    Question(
        "long message down a tree",
        "Reduce to a root along a binomial tree, broadcast along it: lg p rounds each way, as Rabenseifner. 32"
        " ranks, 64 MB, 100 Gb/s, fast"
        " reduction. How many times as long as Rabenseifner does it take?",
        f"{times('binomial', 'rabenseifner', 64e6, LONG):.1f}",
        {
            f"{times('rabenseifner', 'rabenseifner', 64e6, LONG):.1f}": "A tree is fast because it has lg p levels.",
            f"{times('ring', 'rabenseifner', 0.0, LONG):.1f}": "What holds for latency holds for bandwidth.",
            f"{2 * log2(32):.1f}": "Rabenseifner sends the buffer once in all.",
        },
        "Each round of the tree sends the whole buffer; Rabenseifner's halves add up to less than one buffer"
        " each way.",
    ),
    Question(
        "shared NIC",
        "32 nodes of 8 devices that share a NIC. With recursive doubling the buffer leaves each node"
        f" {buffers_out('recursive_doubling', 32, 8):.0f} times. Rabenseifner has the same partners. How often"
        " does it leave with it?",
        f"{buffers_out('rabenseifner', 32, 8):.1f} times",
        {
            f"{buffers_out('recursive_doubling', 32, 8):.1f} times": "The same partners, the same cost.",
            f"{buffers_out('recursive_doubling', 32, 8) / 8:.1f} times": "One device of each node sends for all.",
            f"{buffers_out('recursive_doubling', 32, 8) / 2:.1f} times": (
                "Rabenseifner sends half of the buffer in each round."
            ),
        },
        "When it leaves the node, each device has only its shard of the buffer left to send.",
    ),
    Question(
        "few elements",
        "8 ranks allreduce 4 numbers with a ring. How many rounds pay the latency?",
        f"{rounds('ring', 8, 4)}",
        {
            f"{2 * (4 - 1)}": "More elements than needed are the only waste.",
            f"{rounds('ring', 8, 4) // 2}": "Empty messages are not sent on the way back.",
            f"{log2(4):.0f}": "The number of elements decides the number of rounds.",
        },
        "Some blocks are empty, and their messages still go round: a schedule is for ranks, not for elements.",
    ),
    Question(
        "agreement",
        "After an allreduce of your own all ranks hold the same numbers. What do you know?",
        "That they agree; whether it is the sum needs a proof, or a comparison with one rank",
        {
            "That the sum is right": "If all replicas agree, the sum is right.",
            "That each contribution arrived once": "A contribution that arrives twice would show as a disagreement.",
            "That no message was lost": "A lost message leaves one rank behind.",
        },
        "All ranks can agree on a sum in which a contribution is missing or counted twice.",
    ),
    Question(
        "crossover",
        "64 ranks, 5 µs, 25 Gb/s, free reduction. From which message size on does Rabenseifner overtake"
        " recursive doubling?",
        show(crossing, "B"),
        {
            show(5e-6 * 25e9 / 8, "B"): "The crossover is latency times bandwidth.",
            show(
                5e-6 * 25e9 / 8 * log2(64), "B"
            ): "Each of the lg p rounds adds latency times bandwidth.",
            show(crossing * 8, "B"): "Bits are bytes.",
        },
        "Latency times lg p over the difference of the two slopes, (lg p - 2 (p - 1) / p) times the time of a byte.",
    ),
    Question(
        "two ranks",
        f"On 2 ranks a ring takes {times('ring', 'recursive_doubling', 1e3, PAIR):.1f} times as long as"
        " recursive doubling for 1 kB (10 µs,"
        " 2 Gb/s). And on 256 ranks?",
        f"{times('ring', 'recursive_doubling', 1e3, MANY):.1f} times",
        {
            f"{times('ring', 'recursive_doubling', 1e3, PAIR):.1f} times": "Two ranks can tell me about a cluster.",
            f"{256 / 2 * times('ring', 'recursive_doubling', 1e3, PAIR):.0f} times": (
                "Only the ring gets longer with the ranks."
            ),
            f"{seconds('recursive_doubling', 1e3, MANY) / seconds('ring', 1e3, MANY):.2f} times": (
                "On many ranks the ring is the faster one."
            ),
        },
        "Rounds grow with p for the ring, and with lg p for recursive doubling.",
    ),
]
