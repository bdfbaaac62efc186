"""Problems of module 11, traces and waits."""

from lib_dlhpc.explore.traces import coupled
from lib_dlhpc.explore.traces.waits import Setting, analyzed, gain_of_ideal_network
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import PAGE, Cases, Problem, Step

draw: Cases = globals().get("draw", PAGE)

OWN = draw.any([Setting(late=0.35), Setting(), Setting(late=0.7), Setting(rank=3, late=0.9)])
found = analyzed(OWN)
computed = [float(seconds) for seconds in found.compute]
own = found.efficiency
factors = f"load balance {own.load_balance:.4f}, serialization {own.serialization:.4f}, transfer {own.transfer:.4f}"
way = next(way for way in coupled.ways(coupled.Setting()) if coupled.number_of(way) == 1)
BATCHES = coupled.workflow(coupled.Setting()).batches

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
        f"One of eight ranks simulates, seven train: a batch takes {show(way.produce, 's', 4)} to produce and"
        f" {show(way.consume, 's', 4)} to train on, {BATCHES} batches in all."
        " About how long does the run take?",
        way.seconds,
        Step("The slower side: producing", way.produce, "s"),
        Step("All batches, and the last one's training", BATCHES * way.produce + way.consume, "s"),
    ),
]
