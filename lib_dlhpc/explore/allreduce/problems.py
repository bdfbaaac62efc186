"""Problems of module 03, allreduce."""

from math import log2

from lib_dlhpc.costs import flat
from lib_dlhpc.explore.allreduce.bus import RUN, points
from lib_dlhpc.explore.allreduce.nodes import buffers_out
from lib_dlhpc.explore.allreduce.sizes import crossover
from lib_dlhpc.prediction.collectives import ALGORITHMS, bus_bandwidth
from lib_dlhpc.prediction.validate import results
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import FADED, PAGE, WORKED, Cases, Problem, Step, Trap

draw: Cases = globals().get("draw", PAGE)

ALPHA, RATE = draw.any([5e-6, 3e-6, 4e-6, 8e-6]), draw.any([12.5e9, 25e9, 50e9])
BETA = 1 / RATE
LINK = f"Links have a latency of {show(ALPHA, 's')} and a bandwidth of {show(RATE, 'B/s')}; reduction is free."


def seconds(algorithm: str, ranks: int, size: float) -> float:
    """Return the price of an allreduce."""
    return float(ALGORITHMS[algorithm](size, flat(ranks, ALPHA, BETA)).total)


P, MANY = draw.any([8, 4, 16, 32]), draw.any([64, 32, 128, 256])
LONG, SHORT = draw.any([64e6, 32e6, 96e6, 200e6]), draw.any([4e3, 2e3, 8e3])
NODES, DEVICES = draw.any([32, 8, 64, 128]), draw.any([4, 8])
extra = (
    DEVICES * log2(NODES) - 2 * (NODES - 1) / NODES
)  # buffers out of a node, doubling over halving
latency = log2(MANY) * ALPHA
slopes = (log2(MANY) - 2 * (MANY - 1) / MANY) * BETA
SIDE, BUCKETS = draw.any([8, 4, 16, 12]), draw.any([20, 10, 40, 50])
torus = 4 * (SIDE - 1) * ALPHA, 2 * (SIDE**2 - 1) / SIDE**2 * SHORT * BETA
# A published table, of ml-engineering: bus bandwidth by bytes.
TABLE = "A published benchmark of allreduce on 32 ranks (ml-engineering) reports bus bandwidths, 2 (p - 1) / p · n / t"
LEAST, MOST, BUSY = 32_768, 17_179_869_184, 2 * 31 / 32
slow, fast = (1e9 * float(results()[f"{RUN}-{size}"]["value"]) for size in (LEAST, MOST))
ROWS = {each.size: each for each in points()}
READ = ROWS[draw.any([268_435_456, 1_073_741_824])]
LINE = ROWS[draw.any([1_048_576, 2_097_152, 4_194_304])]
fixed = BUSY * LEAST * (1 / slow - 1 / fast)

PROBLEMS = [
    Problem(
        "A ring",
        f"{LINK} {P} ranks allreduce {show(LONG, 'B')} with a ring. How long does it take?",
        seconds("ring", P, LONG),
        Step("Rounds: 2 (p - 1)", 2 * (P - 1)),
        Step("Bytes per rank per round: n / p", LONG / P, "B"),
        Step("Latency: rounds times α", 2 * (P - 1) * ALPHA, "s"),
        Step("Bandwidth: rounds times n β / p", 2 * (P - 1) * LONG * BETA / P, "s"),
        Step("Together", 2 * (P - 1) * (ALPHA + LONG * BETA / P), "s"),
    ),
    Problem(
        "Recursive doubling",
        f"{LINK} {MANY} ranks allreduce {show(SHORT, 'B')} with recursive doubling: in each round partners"
        " exchange the whole buffer. How long does it take?",
        seconds("recursive_doubling", MANY, SHORT),
        Step("Rounds: lg p", log2(MANY)),
        Step("Bytes per rank and round: n", SHORT, "B"),
        Step("Latency", latency, "s"),
        Step("Bandwidth", log2(MANY) * SHORT * BETA, "s"),
        Step("Together", log2(MANY) * (ALPHA + SHORT * BETA), "s"),
    ),
    Problem(
        "The crossover",
        f"{LINK} Above what message size is Rabenseifner faster than recursive doubling on {MANY} ranks?",
        crossover(MANY, ALPHA, RATE),
        Step("Its additional latency: lg p more rounds", latency, "s"),
        Step("Its saving per byte: (lg p - 2 (p - 1) / p) β", slopes, "s/B"),
        Step("The size at which both are equal", latency / slopes, "B"),
    ),
    Problem(
        "Out of a node",
        f"{NODES} nodes of {DEVICES} devices that share a NIC allreduce with recursive doubling. How many times does"
        " the buffer leave each node?",
        buffers_out("recursive_doubling", NODES, DEVICES),
        Step(f"Rounds between nodes: lg {NODES}", log2(NODES)),
        Step("Devices that send the whole buffer in each round", DEVICES),
        Step("Times the buffer leaves", DEVICES * log2(NODES)),
        kind=WORKED,
    ),
    Problem(
        "Shards out of a node",
        f"The same {NODES} nodes use Rabenseifner's algorithm, first inside a node: each device then has a shard, and"
        " only devices with the same shard exchange between nodes. How many times does the buffer leave each node?",
        buffers_out("rabenseifner", NODES, DEVICES),
        Step("Share of the buffer that a device exchanges with other nodes", 1 / DEVICES),
        Step("Times such a shard leaves: 2 (m - 1) / m", 2 * (NODES - 1) / NODES),
        Step("Times the buffer leaves, with all devices of a node", 2 * (NODES - 1) / NODES),
        kind=FADED,
    ),
    Problem(
        "Through one NIC",
        f"A NIC of {show(RATE, 'B/s')} sends what leaves a node. For a buffer of {show(LONG, 'B')}, how much longer"
        " does it send with recursive doubling than with Rabenseifner's algorithm on these nodes?",
        (
            buffers_out("recursive_doubling", NODES, DEVICES)
            - buffers_out("rabenseifner", NODES, DEVICES)
        )
        * LONG
        / RATE,
        Step("Times more that the buffer leaves", extra),
        Step("These buffers over the NIC", extra * LONG / RATE, "s"),
        traps=[
            Trap(
                (log2(NODES) - 2 * (NODES - 1) / NODES) * LONG / RATE,
                "All devices of a node send through its NIC. With recursive doubling each sends the whole buffer.",
            )
        ],
    ),
    Problem(
        "A square of ranks",
        f"{LINK} {SIDE} × {SIDE} ranks allreduce {show(SHORT, 'B')} on a 2-D torus: reduce-scatter along rows, an"
        " allreduce of what is left along columns, all-gather along rows, all in rings. How long does it take?",
        seconds("torus_2d", SIDE**2, SHORT),
        Step("Rounds: 2 (x - 1) in rows and 2 (y - 1) in columns", 4 * (SIDE - 1)),
        Step("Latency", torus[0], "s"),
        Step("Bandwidth: 2 (p - 1) / p · n β", torus[1], "s"),
        Step("Together", sum(torus), "s"),
        traps=[
            Trap(
                seconds("ring", SIDE**2, SHORT),
                "That is one ring of all ranks. A ring in a row has only as many ranks as the row.",
            ),
            Trap(
                sum(torus) - torus[0] / 2,
                "Each dimension has a reduce-scatter and an all-gather: 2 (x - 1) rounds each.",
            ),
        ],
    ),
    Problem(
        "Find the mistake: buckets",
        f"{LINK} A plan sums {show(LONG, 'B')} of gradients in {BUCKETS} equal buckets, one ring after another, on"
        f" {MANY} ranks, nothing overlapped. It allows the time of one ring for all of it, since the bytes stay the"
        " same. How much longer do the buckets take?",
        BUCKETS * seconds("ring", MANY, LONG / BUCKETS) - seconds("ring", MANY, LONG),
        Step("Rounds of a ring", 2 * (MANY - 1)),
        Step("Latency of a ring", 2 * (MANY - 1) * ALPHA, "s"),
        Step("Of all rings but the one in the plan", (BUCKETS - 1) * 2 * (MANY - 1) * ALPHA, "s"),
        traps=[
            Trap(
                (BUCKETS - 1) * latency,
                "A ring has 2 (p - 1) rounds; lg p are those of recursive doubling.",
            ),
            Trap(
                (BUCKETS - 1) * ALPHA,
                "A bucket pays the latency in each round of its ring, not once.",
            ),
        ],
    ),
    Problem(
        "Read a published table",
        f"{TABLE}: {show(READ.published, 'B/s')} for {READ.size:,.0f} B. How long did this allreduce take?",
        float(bus_bandwidth(READ.size, 1.0, 32)) / READ.published,
        Step("Bytes that the bus bandwidth counts: 2 (p - 1) / p · n", BUSY * READ.size, "B"),
        Step("Over the bus bandwidth", BUSY * READ.size / READ.published, "s"),
        traps=[
            Trap(
                READ.size / READ.published,
                "That is n over the algorithm bandwidth. The bus bandwidth counts what a rank sends in a ring.",
            )
        ],
    ),
    Problem(
        "Two rows predict a third",
        f"{TABLE}: {show(slow, 'B/s')} for {LEAST:,} B and {show(fast, 'B/s', 4)} for {MOST:,} B. Take the time as a"
        " fixed part and a part per byte, which only the long message's bandwidth decides. What bus bandwidth follows"
        f" for {LINE.size:,.0f} B? (The table has {show(LINE.published, 'B/s', 4)}: the library changes its protocol"
        " with the size.)",
        LINE.line,
        Step("Time of the short message", BUSY * LEAST / slow, "s"),
        Step("Its fixed part", fixed, "s"),
        Step("Time of the message in question", fixed + BUSY * LINE.size / fast, "s"),
        Step("Its bus bandwidth", BUSY * LINE.size / (fixed + BUSY * LINE.size / fast), "B/s"),
        traps=[
            Trap(
                fast,
                "Only very long messages reach that: the fixed part takes most of the time here.",
            ),
            Trap(
                slow * LINE.size / LEAST,
                "That is the short message's time for every size: the bytes take time as well.",
            ),
        ],
    ),
]
