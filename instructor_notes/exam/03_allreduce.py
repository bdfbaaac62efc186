"""Exam questions of module 03, allreduce."""

from math import log2

from lib_dlhpc.explore.allreduce.charts import name_of
from lib_dlhpc.explore.allreduce.nodes import buffers_out
from lib_dlhpc.explore.allreduce.rounds import Example
from lib_dlhpc.explore.allreduce.sizes import Flat, crossover
from lib_dlhpc.prediction.communication.collectives import ALGORITHMS
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import Step
from lib_dlhpc.teaching.questions import Draw, Open, Question


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
    ranks, latency = draw.any([8, 16, 32]), draw.between(1.5, 9.0, 0.1)
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
            show((ranks - 1) * latency * 1e-6, "s"): "Ranks add their numbers one after another.",
        },
        "With so few bytes, the number of rounds decides: recursive doubling has the fewest, lg p, each with the"
        f" whole buffer. A binomial tree takes {show(tree, 's')}.",
        [
            Step("Rounds, lg p", log2(ranks)),
            Step("Times the latency", log2(ranks) * latency * 1e-6, "s"),
        ],
    )


def rounds_of_a_ring(draw: Draw) -> Question:
    """Rounds of reduce-scatter and all-gather."""
    ranks = draw.between(9, 400, 1)
    return Question(
        "rounds of a ring",
        f"An allreduce runs on a ring of {ranks} ranks. After how many rounds does every rank have the sum?",
        f"{rounds('ring', ranks, ranks)}",
        {
            f"{rounds('ring', ranks, ranks) // 2}": "The all-gather comes for free.",
            f"{3 * (ranks - 1)}": "Sending and adding take separate rounds.",
            f"{4 * (ranks - 1)}": "A rank sends in one round and receives in the next.",
        },
        "There are p - 1 rounds of reduce-scatter and p - 1 of all-gather.",
        [Step("Rounds of each half, p - 1", ranks - 1), Step("Both", 2 * (ranks - 1))],
    )


def twice_the_bandwidth(draw: Draw) -> Question:
    """What bandwidth is worth to a ring of many ranks."""
    ranks, kilobytes = draw.between(64, 512, 16), draw.between(500, 2500, 100)
    latency = draw.between(2.0, 6.0, 0.5)
    slow, fast = (seconds("ring", kilobytes * 1e3, network(ranks, latency, g)) for g in (50, 100))
    wire = kilobytes * 1e3 / ranks / 6.25e9
    return Question(
        "twice the bandwidth",
        f"A ring allreduces buckets of {kilobytes} kB on {ranks:,} ranks, with a latency of {latency} µs, 50 Gb/s and"
        " free reduction. You double the bandwidth. By how many percent does the exchange get shorter?",
        f"{100 * (1 - fast / slow):.2f}%",
        {
            f"{100 * (1 - 50 / 100):.1f}%": "Bandwidth is what matters.",
            f"{100 * (1 - (50 / 100) ** 0.5):.1f}%": "Time falls with the root of the bandwidth.",
            f"{100 * (1 - 50 / 100) / 2:.1f}%": "Latency and bandwidth take equal shares of the time.",
        },
        f"The latency of 2 (p - 1) rounds is most of the time; sending {kilobytes} kB takes little.",
        [
            Step("Bytes of a round, n / p", kilobytes * 1e3 / ranks, "B"),
            Step("On the wire", wire, "s"),
            Step("Half of that over latency and wire", 50 * wire / (latency * 1e-6 + wire), "%"),
        ],
    )


def latency_alone(draw: Draw) -> Question:
    """Rounds of a ring over those of Rabenseifner."""
    ranks, latency = draw.any([16, 32, 64, 128]), draw.between(1.5, 9.0, 0.1)
    flat = network(ranks, latency, 100)
    ring, halving = (seconds(name, 0.0, flat) for name in ("ring", "rabenseifner"))
    one, levels = latency * 1e-6, log2(ranks)
    return Question(
        "latency alone",
        f"On {ranks:,} ranks, messages are so short that only the latency of {latency} µs counts. How much longer than"
        " Rabenseifner does a ring take?",
        show(ring - halving, "s"),
        {
            show(halving, "s"): "A ring takes twice as long as a tree.",
            show((ring - halving) / 2, "s"): "The all-gather comes for free.",
            show(2 * levels * (levels - 1) * one, "s"): "A ring takes lg p times as many rounds.",
        },
        "A ring has 2 (p - 1) rounds, Rabenseifner 2 lg p.",
        [
            Step("Additional rounds", 2 * (ranks - 1) - 2 * levels),
            Step("Times the latency", (2 * (ranks - 1) - 2 * levels) * one, "s"),
        ],
    )


def long_message_down_a_tree(draw: Draw) -> Question:
    """Whole buffers in each round, or halves."""
    ranks, megabytes = draw.any([16, 32, 64, 128]), draw.between(200, 900, 10)
    flat = network(ranks, 2, 100)
    tree, halving = (seconds(name, megabytes * 1e6, flat) for name in ("binomial", "rabenseifner"))
    longer = log2(ranks) * ranks / (ranks - 1)
    return Question(
        "long message down a tree",
        f"A binomial tree reduces to its root, then broadcasts: lg p rounds each way, like Rabenseifner. On {ranks}"
        f" ranks, with {megabytes} MB, 100 Gb/s and free reduction, Rabenseifner takes {show(halving, 's')}. How long"
        " does the tree take?",
        show(tree, "s"),
        {
            show(halving, "s"): "A tree is fast because it has lg p levels.",
            show(halving * (1 + longer) / 2, "s"): (
                "Only the broadcast sends whole buffers; the reduction sends halves."
            ),
            show(2 * log2(ranks) * halving, "s"): "Rabenseifner sends the buffer only once in all.",
        },
        "Each round of the tree sends the whole buffer; Rabenseifner's shrinking halves add up to less than one"
        " buffer each way.",
        [
            Step(
                "Buffers sent by the tree over those sent by Rabenseifner: lg p over (p - 1) / p",
                longer,
            ),
            Step("Times its time", longer * halving, "s"),
        ],
    )


def shared_nic(draw: Draw) -> Question:
    """How often a buffer leaves a node."""
    machines, devices = draw.any([4, 8, 16, 32]), draw.any([4, 8])
    size = draw.between(20, 400, 5) * 1e6
    doubling, halving = (
        buffers_out(name, machines, devices) for name in ("recursive_doubling", "rabenseifner")
    )
    return Question(
        "shared NIC",
        f"{machines} nodes of {devices} devices that share a NIC sum a buffer of {show(size, 'B')}. With recursive"
        f" doubling, {show(doubling * size, 'B')} leave each node. Rabenseifner has the same partners. How much leaves"
        " each node with Rabenseifner?",
        show(halving * size, "B"),
        {
            show(doubling * size, "B"): "Same partners, same cost.",
            show(doubling / devices * size, "B"): "One device of each node sends for all.",
            show(
                doubling / 2 * size, "B"
            ): "Rabenseifner sends half the bytes of recursive doubling.",
        },
        "By the time messages leave the node, each device has only its shard of the buffer left to send.",
        [
            Step("Buffers that leave each of m nodes: 2 (m - 1) / m", halving),
            Step("Times the buffer", halving * size, "B"),
        ],
    )


def fair_shares(draw: Draw) -> Question:
    """Two groups that use a NIC at once."""
    rate = draw.between(20, 50, 5)
    small, large = draw.between(100, 400, 20), draw.between(500, 900, 20)
    both = (small + large) / rate / 1e3
    return Question(
        "fair shares",
        f"Two groups start an allreduce at the same time. One sends {small} MB through a NIC, the other {large} MB"
        f" through the same NIC, which carries {rate} GB/s and is shared fairly. Latency is negligible. When does the"
        " longer exchange end?",
        show(both, "s"),
        {
            show(large / rate / 1e3, "s"): "A NIC gives each group its full rate.",
            show(2 * large / rate / 1e3, "s"): "Half the rate is left to the end.",
            show(both / 2, "s"): "Two groups at once double what a NIC carries.",
        },
        "Each has half of the rate until the shorter one ends; then the other has all of it. The NIC is never idle.",
        [Step("Bytes of both", small + large, "MB"), Step("Over the rate of the NIC", both, "s")],
    )


def few_elements(draw: Draw) -> Question:
    """Rounds of a schedule that has more ranks than elements."""
    ranks, elements = draw.between(12, 60, 1), draw.between(4, 9, 1)
    return Question(
        "few elements",
        f"{ranks} ranks allreduce {elements} numbers with a ring. How many rounds pay the latency?",
        f"{rounds('ring', ranks, elements)}",
        {
            f"{2 * (elements - 1)}": "A ring has no more rounds than elements.",
            f"{rounds('ring', ranks, elements) // 2}": "The all-gather sends nothing if blocks are empty.",
            f"{ranks + elements - 2}": "The all-gather circulates only blocks that are not empty.",
        },
        "Some blocks are empty, but their messages are still sent: the schedule depends on the ranks, not on the"
        " elements.",
        [
            Step("Rounds of each half: p - 1, for any number of elements", ranks - 1),
            Step("Both", 2 * (ranks - 1)),
        ],
    )


def overtaking(draw: Draw) -> Question:
    """The size from which halves are better than whole buffers."""
    ranks, latency, gigabits = (
        draw.any([16, 32, 64, 128, 256]),
        draw.between(1.5, 8.0, 0.5),
        draw.any([25, 40, 50, 200]),
    )
    size, product = (
        crossover(ranks, latency * 1e-6, gigabits * 1e9 / 8),
        latency * 1e-6 * gigabits * 1e9 / 8,
    )
    levels = log2(ranks)
    return Question(
        "crossover",
        f"On {ranks} ranks, with a latency of {latency} µs, {gigabits} Gb/s and free reduction, from which message"
        " size on is Rabenseifner faster than recursive doubling?",
        show(size, "B"),
        {
            show(product, "B"): "The crossover is latency times bandwidth.",
            show(product * levels, "B"): "Each of the lg p rounds adds latency times bandwidth.",
            show(size * 8, "B"): "Bits and bytes are the same.",
        },
        "It is the difference in latency, lg p latencies, over the difference of the slopes, (lg p - 2 (p - 1) / p)"
        " times the time per byte.",
        [
            Step("Latency times bandwidth", product, "B"),
            Step(
                "Times lg p over lg p - 2 (p - 1) / p",
                product * levels / (levels - 2 * (ranks - 1) / ranks),
                "B",
            ),
        ],
    )


def two_ranks(draw: Draw) -> Question:
    """What two ranks tell of a cluster."""
    latency, many = draw.between(2.0, 9.0, 0.1), draw.any([8, 16, 32, 64])
    pair, cluster = (network(p, latency, 10) for p in (2, many))
    few, all_ = (times("ring", "recursive_doubling", 1e3, flat) for flat in (pair, cluster))
    ring = 2 * (many - 1) * (latency * 1e-6 + 1e3 / many / 1.25e9)
    doubling = log2(many) * (latency * 1e-6 + 1e3 / 1.25e9)
    return Question(
        "two ranks",
        f"On 2 ranks, a ring takes {few:.2f} times as long as recursive doubling for 1 kB ({latency} µs, 10 Gb/s, free"
        f" reduction). How many times as long does it take on {many} ranks?",
        f"{all_:.2f} times",
        {
            f"{few:.2f} times": "Two ranks can tell me about a cluster.",
            f"{ring / seconds('recursive_doubling', 1e3, pair):.2f} times": (
                "Only the ring gets longer with the ranks."
            ),
            f"{all_ / 2:.2f} times": "The all-gather comes for free.",
        },
        "Rounds grow with p for the ring, and with lg p for recursive doubling.",
        [
            Step("Ring: 2 (p - 1) rounds of n / p", ring, "s"),
            Step("Recursive doubling: lg p rounds of n", doubling, "s"),
            Step("One over the other", ring / doubling, "times"),
        ],
    )


OPEN = Open(
    "A library uses the ring algorithm for all allreduces of a training run. In each step, the run sums many buffers"
    " of a few kilobytes and one of 500 MB, on 256 ranks. What do you tell the library's authors, and how do you find"
    " the size at which the choice should change?",
    "Short buffers pay 2 (p - 1) latencies on a ring where lg p would do; the ring is fine for the long one, where"
    " bytes decide. Set the two prices equal to find the size where the choice changes, with measured latency and"
    " bandwidth; or gather the small buffers into one.",
    {
        "compares rounds for short buffers and bytes for the long one, with formulas": 3,
        "finds the size where two algorithms take equally long, and says what it depends on": 2,
        "names a measurement, or a change such as gathering small buffers": 1,
    },
)

QUESTIONS = [
    short_message,
    rounds_of_a_ring,
    twice_the_bandwidth,
    latency_alone,
    long_message_down_a_tree,
    shared_nic,
    fair_shares,
    few_elements,
    Question(
        "agreement",
        "After an allreduce that you wrote, all ranks hold the same numbers. What do you know?",
        "That they agree; the sum itself needs a proof",
        {
            "That the sum is right": "If all replicas agree, the sum is right.",
            "That each contribution arrived exactly once": "A contribution that arrives twice shows as a disagreement.",
            "That no message was lost on its way to another rank": "A lost message leaves one rank behind.",
        },
        "All ranks can agree on a sum in which a contribution is missing or counted twice. Prove the schedule, or"
        " compare with one rank.",
    ),
    overtaking,
    two_ranks,
]
