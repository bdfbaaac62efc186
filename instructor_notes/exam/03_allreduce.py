"""Exam questions of module 03, allreduce."""

from math import ceil, log2

from lib_dlhpc.explore.allreduce.charts import name_of
from lib_dlhpc.explore.allreduce.nodes import buffers_out
from lib_dlhpc.explore.allreduce.rounds import Example
from lib_dlhpc.explore.allreduce.sizes import Flat, crossover
from lib_dlhpc.prediction.collectives import ALGORITHMS
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.questions import Draw, Question


def seconds(algorithm: str, size: float, setting: Flat) -> float:
    """Return the price of an allreduce."""
    return float(ALGORITHMS[algorithm](size, setting.network).total)


def times(algorithm: str, other: str, size: float, setting: Flat) -> float:
    """Return how many times as long as another an algorithm takes."""
    return seconds(algorithm, size, setting) / seconds(other, size, setting)


def rounds(algorithm: str, ranks: int, elements: int) -> int:
    """Return the rounds of a schedule."""
    return len(tuple(Example(algorithm, ranks, elements).plan))


def network(ranks: int, latency: float, gigabits: float) -> Flat:
    """Return a flat network with free reduction. latency: µs."""
    return Flat(ranks, latency * 1e-6, gigabits * 1e9 / 8, 1e15)


def short_message(draw: Draw) -> Question:
    """How long the fastest algorithm for short messages takes."""
    ranks, latency = draw.of([64, 128, 512]), draw.of([3, 4, 6, 7])
    flat = network(ranks, latency, 100)
    doubling, ring, halving, tree = (
        seconds(name, 64.0, flat)
        for name in ("recursive_doubling", "ring", "rabenseifner", "binomial")
    )
    return Question(
        "short message",
        f"{ranks} ranks allreduce 64 B on a cluster with a latency of {latency} µs and 100 Gb/s. How long does the"
        f" fastest of {name_of('ring')}, {name_of('recursive_doubling')} and {name_of('rabenseifner')} take?",
        show(doubling, "s"),
        {
            show(ring, "s"): "Ring is the best allreduce.",
            show(halving, "s"): "The fewest bytes win at any size.",
            show(latency * 1e-6, "s"): "All ranks exchange at once, so one latency is paid.",
        },
        "With so few bytes the number of rounds decides: recursive doubling has the fewest, lg p, each of the whole"
        f" buffer. A binomial tree takes {show(tree, 's')}.",
    )


def rounds_of_a_ring(draw: Draw) -> Question:
    """Rounds of reduce-scatter and all-gather."""
    ranks = draw.of([12, 20, 24, 36, 48])
    return Question(
        "rounds of a ring",
        f"A ring of {ranks} ranks. After how many rounds does every rank have the sum?",
        f"{rounds('ring', ranks, ranks)}",
        {
            f"{rounds('ring', ranks, ranks) // 2}": "The all-gather comes for free.",
            f"{ceil(log2(ranks))}": "Every collective takes lg p rounds.",
            f"{ranks * (ranks - 1)}": "Rounds are messages.",
        },
        "p - 1 rounds of reduce-scatter and p - 1 of all-gather.",
    )


def twice_the_bandwidth(draw: Draw) -> Question:
    """What bandwidth is worth to a ring of many ranks."""
    ranks, kilobytes = draw.of([256, 512, 768]), draw.of([500, 800])
    latency = draw.of([3, 4, 5, 6])
    slow, fast = (seconds("ring", kilobytes * 1e3, network(ranks, latency, g)) for g in (50, 100))
    return Question(
        "twice the bandwidth",
        f"A ring allreduces buckets of {kilobytes} kB on {ranks:,} ranks, {latency} µs, 50 Gb/s, free reduction. You"
        " double the bandwidth. By how many percent does the exchange get shorter?",
        f"{100 * (1 - fast / slow):.2f} %",
        {
            f"{100 * (1 - 50 / 100):.1f} %": "Bandwidth is what matters.",
            f"{100 * (1 - (50 / 100) ** 0.5):.1f} %": "Latency and bandwidth have equal parts.",
            f"{100 * (1 - 50 / 100) / 2:.1f} %": "Half of the rounds profit.",
        },
        f"2 (p - 1) rounds pay the latency; {kilobytes} kB are a small part of that.",
    )


def latency_alone(draw: Draw) -> Question:
    """Rounds of a ring over those of Rabenseifner."""
    ranks = draw.of([64, 128, 512, 1024, 2048])
    flat = network(ranks, 5, 100)
    return Question(
        "latency alone",
        f"{ranks:,} ranks, a message so short that only latency counts. How many times as long as Rabenseifner does a"
        " ring take?",
        f"{times('ring', 'rabenseifner', 0.0, flat):.1f}",
        {
            f"{1.0:.1f}": "Both move the same bytes, so they take equally long.",
            f"{rounds('ring', ranks, ranks)}": "Rabenseifner takes one round.",
            f"{2 * log2(ranks):.1f}": "A ring takes lg p times as many rounds.",
        },
        "2 (p - 1) rounds over 2 lg p.",
    )


def long_message_down_a_tree(draw: Draw) -> Question:
    """Whole buffers in each round, or halves."""
    ranks, megabytes = draw.of([16, 64, 128, 256]), draw.of([200, 400, 800])
    flat = network(ranks, 2, 100)
    return Question(
        "long message down a tree",
        "Reduce to a root along a binomial tree, broadcast along it: lg p rounds each way, as Rabenseifner."
        f" {ranks} ranks, {megabytes} MB, 100 Gb/s, free reduction. How many times as long as Rabenseifner does it"
        " take?",
        f"{times('binomial', 'rabenseifner', megabytes * 1e6, flat):.2f}",
        {
            f"{1.0:.2f}": "A tree is fast because it has lg p levels.",
            f"{times('ring', 'rabenseifner', 0.0, flat):.2f}": "What holds for latency holds for bandwidth.",
            f"{2 * log2(ranks):.2f}": "Rabenseifner sends the buffer once in all.",
        },
        "Each round of the tree sends the whole buffer; Rabenseifner's halves add up to less than one buffer"
        " each way.",
    )


def shared_nic(draw: Draw) -> Question:
    """How often a buffer leaves a node."""
    machines, devices = draw.of([(16, 4), (64, 4), (8, 8), (16, 8), (32, 4)])
    doubling, halving = (
        buffers_out(name, machines, devices) for name in ("recursive_doubling", "rabenseifner")
    )
    return Question(
        "shared NIC",
        f"{machines} nodes of {devices} devices that share a NIC. With recursive doubling the buffer leaves each node"
        f" {doubling:.0f} times. Rabenseifner has the same partners. How often does it leave with it?",
        f"{halving:.2f} times",
        {
            f"{doubling:.2f} times": "Same partners, same cost.",
            f"{doubling / devices:.2f} times": "One device of each node sends for all.",
            f"{doubling / 2:.2f} times": "Rabenseifner sends half of the buffer in each round.",
        },
        "When it leaves the node, each device has only its shard of the buffer left to send.",
    )


def few_elements(draw: Draw) -> Question:
    """Rounds of a schedule that has more ranks than elements."""
    ranks, elements = draw.of([(10, 4), (12, 5), (20, 8), (40, 6), (18, 4)])
    return Question(
        "few elements",
        f"{ranks} ranks allreduce {elements} numbers with a ring. How many rounds pay the latency?",
        f"{rounds('ring', ranks, elements)}",
        {
            f"{2 * (elements - 1)}": "More elements than needed are the only waste.",
            f"{rounds('ring', ranks, elements) // 2}": "Empty messages are not sent on the way back.",
            f"{ceil(log2(elements))}": "The number of elements decides the number of rounds.",
        },
        "Some blocks are empty, and their messages still go round: a schedule is for ranks, not for elements.",
    )


def overtaking(draw: Draw) -> Question:
    """The size from which halves are better than whole buffers."""
    ranks, latency, gigabits = draw.of([32, 128, 256]), draw.of([2, 3, 4, 8]), draw.of([40, 200])
    size, product = (
        crossover(ranks, latency * 1e-6, gigabits * 1e9 / 8),
        latency * 1e-6 * gigabits * 1e9 / 8,
    )
    return Question(
        "crossover",
        f"{ranks} ranks, {latency} µs, {gigabits} Gb/s, free reduction. From which message size on does Rabenseifner"
        " overtake recursive doubling?",
        show(size, "B"),
        {
            show(product, "B"): "The crossover is latency times bandwidth.",
            show(
                product * log2(ranks), "B"
            ): "Each of the lg p rounds adds latency times bandwidth.",
            show(size * 8, "B"): "Bits are bytes.",
        },
        "Latency times lg p over the difference of the two slopes, (lg p - 2 (p - 1) / p) times the time of a byte.",
    )


def two_ranks(draw: Draw) -> Question:
    """What two ranks tell of a cluster."""
    latency, many = draw.of([4, 5, 6, 8]), draw.of([64, 128, 512])
    few, all_ = (
        times("ring", "recursive_doubling", 1e3, network(p, latency, 10)) for p in (2, many)
    )
    return Question(
        "two ranks",
        f"On 2 ranks a ring takes {few:.2f} times as long as recursive doubling for 1 kB ({latency} µs, 10 Gb/s, free"
        f" reduction). And on {many} ranks?",
        f"{all_:.2f} times",
        {
            f"{few:.2f} times": "Two ranks can tell me about a cluster.",
            f"{many / 2 * few:.2f} times": "Only the ring gets longer with the ranks.",
            f"{1 / all_:.3f} times": "On many ranks the ring is the faster one.",
        },
        "Rounds grow with p for the ring, and with lg p for recursive doubling.",
    )


QUESTIONS = [
    short_message,
    rounds_of_a_ring,
    twice_the_bandwidth,
    latency_alone,
    long_message_down_a_tree,
    shared_nic,
    few_elements,
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
    overtaking,
    two_ranks,
]
