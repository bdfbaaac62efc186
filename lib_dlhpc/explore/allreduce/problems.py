"""Problems of module 03, allreduce."""

from math import log2

from lib_dlhpc.costs import flat
from lib_dlhpc.explore.allreduce.bus import RUN, points
from lib_dlhpc.explore.allreduce.nodes import buffers_out
from lib_dlhpc.explore.allreduce.sizes import crossover
from lib_dlhpc.prediction.communication.collectives import ALGORITHMS, bus_bandwidth
from lib_dlhpc.prediction.validation.validate import results
from lib_dlhpc.teaching.problem_texts import Numbers, written
from lib_dlhpc.teaching.problems import PAGE, Cases

draw: Cases = globals().get("draw", PAGE)

ALPHA, RATE = draw.any([5e-6, 3e-6, 4e-6, 8e-6]), draw.any([12.5e9, 25e9, 50e9])
BETA = 1 / RATE


def seconds(algorithm: str, ranks: int, size: float) -> float:
    """Return the price of an allreduce."""
    return float(ALGORITHMS[algorithm](size, flat(ranks, ALPHA, BETA)).total)


P, MANY = draw.any([8, 4, 16, 32]), draw.any([64, 32, 128, 256])
LONG, SHORT = draw.any([64e6, 32e6, 96e6, 200e6]), draw.any([4e3, 2e3, 8e3])
NODES, DEVICES = draw.any([32, 8, 64, 128]), draw.any([4, 8])
# buffers out of a node, doubling over halving
extra = DEVICES * log2(NODES) - 2 * (NODES - 1) / NODES
latency = log2(MANY) * ALPHA
slopes = (log2(MANY) - 2 * (MANY - 1) / MANY) * BETA
SIDE, BUCKETS = draw.any([8, 4, 16, 12]), draw.any([20, 10, 40, 50])
torus = 4 * (SIDE - 1) * ALPHA, 2 * (SIDE**2 - 1) / SIDE**2 * SHORT * BETA
# A published table, of ml-engineering: bus bandwidth by bytes.
LEAST, MOST, BUSY = 32_768, 17_179_869_184, 2 * 31 / 32
slow, fast = (1e9 * float(results()[f"{RUN}-{size}"]["value"]) for size in (LEAST, MOST))
ROWS = {each.size: each for each in points()}
READ = ROWS[draw.any([268_435_456, 1_073_741_824])]
LINE = ROWS[draw.any([1_048_576, 2_097_152, 4_194_304])]
fixed = BUSY * LEAST * (1 / slow - 1 / fast)

PROBLEMS = written(
    globals(),
    ring=Numbers(
        seconds("ring", P, LONG),
        rounds=2 * (P - 1),
        piece=LONG / P,
        latency=2 * (P - 1) * ALPHA,
        bandwidth=2 * (P - 1) * LONG * BETA / P,
        total=2 * (P - 1) * (ALPHA + LONG * BETA / P),
    ),
    recursive_doubling=Numbers(
        seconds("recursive_doubling", MANY, SHORT),
        rounds=log2(MANY),
        bandwidth=log2(MANY) * SHORT * BETA,
        total=log2(MANY) * (ALPHA + SHORT * BETA),
    ),
    crossover=Numbers(crossover(MANY, ALPHA, RATE), size=latency / slopes),
    out_of_a_node=Numbers(
        buffers_out("recursive_doubling", NODES, DEVICES),
        rounds=log2(NODES),
        times=DEVICES * log2(NODES),
    ),
    shards=Numbers(
        buffers_out("rabenseifner", NODES, DEVICES),
        shard=1 / DEVICES,
        times=2 * (NODES - 1) / NODES,
    ),
    through_one_nic=Numbers(
        (
            buffers_out("recursive_doubling", NODES, DEVICES)
            - buffers_out("rabenseifner", NODES, DEVICES)
        )
        * LONG
        / RATE,
        more=extra * LONG / RATE,
        one_device=(log2(NODES) - 2 * (NODES - 1) / NODES) * LONG / RATE,
    ),
    square=Numbers(
        seconds("torus_2d", SIDE**2, SHORT),
        rounds=4 * (SIDE - 1),
        latency=torus[0],
        bandwidth=torus[1],
        total=sum(torus),
        one_ring=seconds("ring", SIDE**2, SHORT),
        one_way=sum(torus) - torus[0] / 2,
    ),
    buckets=Numbers(
        BUCKETS * seconds("ring", MANY, LONG / BUCKETS) - seconds("ring", MANY, LONG),
        rounds=2 * (MANY - 1),
        each=2 * (MANY - 1) * ALPHA,
        more=(BUCKETS - 1) * 2 * (MANY - 1) * ALPHA,
        doublings=(BUCKETS - 1) * latency,
        once=(BUCKETS - 1) * ALPHA,
    ),
    published=Numbers(
        float(bus_bandwidth(READ.size, 1.0, 32)) / READ.published,
        counted=BUSY * READ.size,
        time=BUSY * READ.size / READ.published,
        algorithm=READ.size / READ.published,
    ),
    two_rows=Numbers(
        LINE.line,
        short=BUSY * LEAST / slow,
        time=fixed + BUSY * LINE.size / fast,
        bus=BUSY * LINE.size / (fixed + BUSY * LINE.size / fast),
        same_time=slow * LINE.size / LEAST,
    ),
)
