"""Problems of module 11, traces and waits."""

from math import sqrt

from lib_dlhpc.explore.traces import coupled
from lib_dlhpc.explore.traces.waits import Setting, analyzed, gain_of_ideal_network
from lib_dlhpc.prediction.coupled import OVERSHOOT, predict_coupled, waits
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import FADED, PAGE, WORKED, Cases, Problem, Step, Trap

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
SHORT = COUPLED._replace(sampling=1)
hurry = predict_coupled(coupled.workflow(SHORT, BATCHES), coupled.costs(SHORT), coupled.RANKS)
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
        Step("Mean of the four times", sum(computed) / 4, "s"),
        Step("Time of the busiest rank", max(computed), "s"),
        Step("Mean over the time of the busiest", 100 * sum(computed) / 4 / max(computed), "%"),
    ),
    Problem(
        "The factors",
        f"A run has these efficiencies: {factors}. For what share of the time do ranks compute on average?",
        100 * own.parallel,
        Step(
            "Communication efficiency: serialization times transfer",
            own.serialization * own.transfer,
        ),
        Step(
            "Parallel efficiency: that times load balance",
            100 * own.load_balance * own.serialization * own.transfer,
            "%",
        ),
    ),
    Problem(
        "An ideal network",
        f"The run of problem 2 takes {show(found.span, 's')}. By how many percent would an ideal network shorten it?",
        gain_of_ideal_network(OWN),
        Step(
            "Its time on an ideal network: transfer efficiency times the time",
            own.transfer * found.span,
            "s",
        ),
        Step("Share of the time that is saved", 100 * (1 - own.transfer), "%"),
    ),
    Problem(
        "Which side is the bottleneck?",
        f"Of eight ranks, {way.simulating} simulate and {way.training} train. A batch takes"
        f" {show(way.produce, 's', 4)} to produce and {show(way.consume, 's', 4)} to train on, and there are {BATCHES}"
        " batches in all. The two sides work at the same time. About how long does the run take?",
        way.seconds,
        Step("Time per batch of the slower side, which produces", way.produce, "s"),
        Step(
            "Producing all batches, then training on the last one",
            BATCHES * way.produce + way.consume,
            "s",
        ),
        traps=[
            Trap(
                BATCHES * (way.produce + way.consume),
                "That holds if the two sides take turns. Here one side produces the next batch while the other trains.",
            ),
            Trap(
                BATCHES * way.consume + way.produce,
                "That assumes that training is the slower side. Here training waits for samples: producing is slower.",
            ),
        ],
        kind=WORKED,
    ),
    Problem(
        "Samples that are waited for",
        "For how long does a training rank of problem 4 wait for samples in the whole run?",
        way.terms["wait for samples"] * coupled.RANKS / way.training,
        Step("Wait for the first batch: the time to produce it", way.produce, "s"),
        Step("Wait for each later batch: producing less training", starved, "s"),
        Step("All waits together", way.produce + (BATCHES - 1) * starved, "s"),
        traps=[
            Trap(
                BATCHES * way.produce,
                "While a batch is produced, a training rank works on the one before: subtract the time of training.",
            )
        ],
        kind=FADED,
    ),
    Problem(
        "A shorter simulation",
        "The simulation of problem 4 now takes an eighth of the steps per sample: a batch takes"
        f" {show(hurry.produce, 's', 4)} to produce, and as long as before to train on. How long does the run take?",
        hurry.seconds,
        Step("Time per batch of the slower side, which now trains", hurry.consume, "s"),
        Step(
            "Producing the first batch, then training on all",
            hurry.produce + BATCHES * hurry.consume,
            "s",
        ),
        traps=[
            Trap(
                BATCHES * hurry.produce + hurry.consume,
                "That holds while producing is the slower side. Compare the two times again.",
            )
        ],
    ),
    Problem(
        "Both sides vary",
        f"Producing a batch and training on it take {EACH} ms each on average, and vary independently by {VARIES}% (one"
        f" standard deviation). The buffer holds {DEPTH} batches. Then each side waits for σ² / (2 b) per batch. Here σ"
        f" is the standard deviation of the difference of the two times, and b = D p + {2 * OVERSHOOT:.3f} σ, with D"
        " batches of buffer and a mean time p per batch. How long is that wait?",
        waits(EACH / 1e3, EACH / 1e3, spread, DEPTH)[0],
        Step("σ: the square root of 2 times the standard deviation of one side", spread, "s"),
        Step(f"b = D p + {2 * OVERSHOOT:.3f} σ", room, "s"),
        Step("Wait: σ² / (2 b)", spread**2 / (2 * room), "s"),
        traps=[
            Trap(
                (spread / sqrt(2)) ** 2 / (2 * (DEPTH * EACH / 1e3 + sqrt(2) * OVERSHOOT * spread)),
                "Both sides vary: the variance of the difference is the sum of both variances.",
            )
        ],
    ),
    Problem(
        "Nobody in the way",
        f"The run of problem 2 takes {show(found.span, 's')}. Suppose that serialization efficiency becomes 1, and the"
        " other two factors stay. How long does it take then?",
        own.serialization * found.span,
        Step("Efficiency grows by this factor: 1 over serialization", 1 / own.serialization),
        Step("The time shrinks by it", own.serialization * found.span, "s"),
        traps=[
            Trap(
                (1 - own.serialization) * found.span,
                "That is the time saved, not the time that is left.",
            )
        ],
    ),
    Problem(
        "What balance would save",
        f"In another run, four ranks compute for {', '.join(show(seconds, 's', 4) for seconds in busy)}, and the run"
        f" takes {show(whole, 's', 4)}. Suppose that the same work is balanced perfectly, while serialization and"
        " transfer efficiency stay as they are. How long does the run take then?",
        late.efficiency.load_balance * whole,
        Step("Mean compute time", sum(busy) / 4, "s"),
        Step(
            "Load balance: the mean over the time of the busiest",
            100 * sum(busy) / 4 / max(busy),
            "%",
        ),
        Step("Load balance times the run", sum(busy) / 4 / max(busy) * whole, "s"),
        traps=[
            Trap(
                sum(busy) / 4,
                "That also removes all messages and all other waits. Only load balance becomes 1.",
            ),
            Trap(
                min(busy) / max(busy) * whole,
                "The slow rank's work does not vanish: if it is balanced, each rank computes for the mean time.",
            ),
        ],
    ),
    Problem(
        "Find the mistake: a faster network",
        f"In a run of {show(whole, 's', 4)}, ranks do not compute for {100 * outside:.2f}% of the time; transfer"
        f" efficiency is {late.efficiency.transfer:.4f}. A plan buys a network {TIMES} times as fast, and expects all"
        " time outside of computation to fall to a tenth. How many seconds more does it promise to save than an ideal"
        " network would?",
        hoped - gain_of_ideal_network(OTHER) / 100 * whole,
        Step("Promised saving: nine tenths of the time outside of computation", hoped, "s"),
        Step("Saving with an ideal network: (1 - transfer efficiency) times the run", real, "s"),
        Step("Promised less possible saving", hoped - real, "s"),
        traps=[
            Trap(
                outside * whole - real,
                "That takes all of the time outside of computation. The plan expects nine tenths of it.",
            )
        ],
    ),
]
