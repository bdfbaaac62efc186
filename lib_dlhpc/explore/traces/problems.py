"""Problems of module 11, traces and waits."""

from math import sqrt

from lib_dlhpc.explore.traces import coupled
from lib_dlhpc.explore.traces.waits import Setting, analyzed, gain_of_ideal_network
from lib_dlhpc.prediction.coupled import OVERSHOOT, predict_coupled, waits
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import PAGE, Cases, Problem, Step, Trap

draw: Cases = globals().get("draw", PAGE)

OWN = draw.any([Setting(late=0.35), Setting(), Setting(late=0.7), Setting(rank=3, late=0.9)])
found = analyzed(OWN)
computed = [float(seconds) for seconds in found.compute]
own = found.efficiency
factors = f"load balance {own.load_balance:.4f}, serialization {own.serialization:.4f}, transfer {own.transfer:.4f}"
BATCHES = draw.any([250, 150, 400])
COUPLED = draw.any([coupled.Setting(2, 8, jitter=0.0), coupled.Setting(3, 8, jitter=0.0)])
way = predict_coupled(coupled.workflow(COUPLED, BATCHES), coupled.costs(COUPLED), coupled.RANKS)
starved = way.produce - way.consume
EACH, VARIES, DEPTH = draw.any([20, 12, 30]), draw.any([30, 20, 25]), draw.any([2, 4, 3])
spread = sqrt(2) * VARIES / 100 * EACH / 1e3
room = DEPTH * EACH / 1e3 + 2 * OVERSHOOT * spread
OTHER = draw.any([Setting(rank=1, late=0.6), Setting(rank=0, late=0.45), Setting(rank=3, late=0.8)])
late = analyzed(OTHER)
busy, whole = [float(seconds) for seconds in late.compute], float(late.span)
TIMES, outside = 10, 1 - late.efficiency.parallel
hoped, real = (1 - 1 / TIMES) * outside * whole, (1 - late.efficiency.transfer) * whole

PROBLEMS = [
    Problem(
        "Load balance",
        f"Four ranks compute for {', '.join(show(seconds, 's', 4) for seconds in computed)}. What is the load balance?",
        100 * own.load_balance,
        Step("Mean", sum(computed) / 4, "s"),
        Step("Most", max(computed), "s"),
        Step("Mean over most", 100 * sum(computed) / 4 / max(computed), "%"),
    ),
    Problem(
        "The factors",
        f"A run has {factors}. For what share of the time do ranks compute on average?",
        100 * own.parallel,
        Step("Communication: serialization times transfer", own.serialization * own.transfer),
        Step("Times load balance", 100 * own.load_balance * own.serialization * own.transfer, "%"),
    ),
    Problem(
        "An ideal network",
        f"The same run takes {show(found.span, 's')}. By how many percent would an ideal network shorten it?",
        gain_of_ideal_network(OWN),
        Step("Its time there: transfer times the run", own.transfer * found.span, "s"),
        Step("What is saved", 100 * (1 - own.transfer), "%"),
    ),
    Problem(
        "Which side is the bottleneck?",
        f"Of eight ranks, {way.simulating} simulate and {way.training} train: a batch takes"
        f" {show(way.produce, 's', 4)} to produce and {show(way.consume, 's', 4)} to train on, {BATCHES} batches in"
        " all. The two sides work at the same time. About how long does the run take?",
        way.seconds,
        Step("The slower side: producing", way.produce, "s"),
        Step("All batches, and the last one's training", BATCHES * way.produce + way.consume, "s"),
        traps=[
            Trap(
                BATCHES * (way.produce + way.consume),
                "That is for ranks that do both in turn. Here one side works on the next batch meanwhile.",
            ),
            Trap(
                BATCHES * way.consume + way.produce,
                "Training waits for samples: the slower side decides.",
            ),
        ],
    ),
    Problem(
        "Samples that are waited for",
        "For how long does a training rank of problem 4 wait for samples in the whole run?",
        way.terms["wait for samples"] * coupled.RANKS / way.training,
        Step("For the first batch", way.produce, "s"),
        Step("For each later batch: producing less training", starved, "s"),
        Step("In all", way.produce + (BATCHES - 1) * starved, "s"),
        traps=[
            Trap(
                BATCHES * way.produce,
                "While the next batch is produced, a training rank works on the last one: subtract that.",
            )
        ],
    ),
    Problem(
        "Both sides vary",
        f"Producing a batch and training on it take {EACH} ms each, and vary independently by {VARIES}% (one standard"
        f" deviation); the buffer holds {DEPTH} batches. Each side then waits for σ² / (2 b) per batch: σ is the"
        f" standard deviation of the difference of both times, and b = D p + {2 * OVERSHOOT:.3f} σ. How long is that?",
        waits(EACH / 1e3, EACH / 1e3, spread, DEPTH)[0],
        Step("σ: root of 2 times that of one side", spread, "s"),
        Step("b", room, "s"),
        Step("σ² / (2 b)", spread**2 / (2 * room), "s"),
        traps=[
            Trap(
                (spread / sqrt(2)) ** 2 / (2 * (DEPTH * EACH / 1e3 + sqrt(2) * OVERSHOOT * spread)),
                "Both sides vary: the variance of the difference is the sum of both variances.",
            )
        ],
    ),
    Problem(
        "What balance would save",
        f"Four other ranks compute for {', '.join(show(seconds, 's', 4) for seconds in busy)}, and their run takes"
        f" {show(whole, 's', 4)}. Suppose that the same work is balanced perfectly, and serialization and transfer"
        " stay as they are. How long does the run take then?",
        late.efficiency.load_balance * whole,
        Step("Mean", sum(busy) / 4, "s"),
        Step("Load balance: over the most", 100 * sum(busy) / 4 / max(busy), "%"),
        Step("Times the run", sum(busy) / 4 / max(busy) * whole, "s"),
        traps=[
            Trap(
                sum(busy) / 4,
                "That also removes all messages and all waits in between: only load balance becomes 1.",
            ),
            Trap(
                min(busy) / max(busy) * whole,
                "The slow rank's work does not vanish: balanced, each rank has the mean.",
            ),
        ],
    ),
    Problem(
        "Find the mistake: a faster network",
        f"Ranks are outside of computation for {100 * outside:.2f}% of a run of {show(whole, 's', 4)}; its transfer is"
        f" {late.efficiency.transfer:.4f}. A plan buys a network {TIMES} times as fast and expects all of that time to"
        " fall to a tenth. How many seconds does it promise beyond what an ideal network saves?",
        hoped - gain_of_ideal_network(OTHER) / 100 * whole,
        Step("The plan: nine tenths of the time outside of computation", hoped, "s"),
        Step("An ideal network: 1 - transfer, of the run", real, "s"),
        Step("The difference", hoped - real, "s"),
        traps=[
            Trap(
                outside * whole - real, "The plan expects nine tenths of that time, not all of it."
            )
        ],
    ),
]
