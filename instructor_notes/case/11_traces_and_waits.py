"""Case of module 11: what a published slowdown can be, a plan from a trace, and the ranks of a workflow."""

from lib_dlhpc.explore.data_parallel.waiting import expected_wait
from lib_dlhpc.explore.traces import coupled
from lib_dlhpc.explore.traces.waits import Setting, analyzed, gain_of_ideal_network
from lib_dlhpc.prediction.validation.validate import results
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.cases import Case, Choice, Draw, Line, Option, Plan, Reading, Step, Table

FEW, MANY = 8, 352
SLOWER = 100 * float(results()["goyal17-r50-iterinc"]["value"])  # %
EFFICIENT = 100 * float(results()["goyal17-r50-eff"]["value"])  # % at 256 GPUs
JITTER = coupled.Setting().jitter
CHOSEN = (coupled.SHARED, 1, 4, 5, 6, 7)  # ranks that simulate
WHEN = {
    coupled.SHARED: (
        "No side waits, and neither a buffer nor a second program is needed: defensible where simplicity outweighs"
        " the seconds by which other placements are faster."
    ),
    1: "",
    4: "The fastest if a sample takes 2 steps: for a team that expects shorter simulations.",
    5: "The fastest with 4 steps, and never far behind.",
    6: (
        "A little slower with 4 steps, but faster than 5 + 3 if a sample takes 8 steps: for a team whose simulations"
        " may get longer."
    ),
    7: "The fastest with 8 steps, and far behind otherwise: only for a team that is sure of them.",
}


def times(sampling: int) -> dict[int, float]:
    """Return the s of a run by the ranks that simulate."""
    ways = coupled.ways(coupled.Setting(sampling=sampling, jitter=JITTER))
    return {coupled.number_of(way): way.seconds for way in ways}


def case(draw: Draw) -> Case:
    """Return a version: the late rank of the plan, and the jitter of the GPUs in print."""
    late = draw.of(
        [Setting(rank=1, late=0.6), Setting(rank=3, late=0.45), Setting(rank=0, late=0.8)]
    )
    sigma = draw.any([1.5, 2.0, 2.5])
    found, few, many = (
        analyzed(late),
        expected_wait(FEW, sigma / 100),
        expected_wait(MANY, sigma / 100),
    )
    computed = [float(each) for each in found.compute]
    waiting = max(range(4), key=lambda rank: -computed[rank])
    grown = 100 * ((1 + many / 100) / (1 + few / 100) - 1)
    outside, transfer = 100 * (1 - found.efficiency.parallel), gain_of_ideal_network(late)
    now, half, twice = (times(steps) for steps in (4, 2, 8))
    return Case(
        "A published slowdown, a trace, and eight ranks",
        Table(
            "ResNet-50 on P100 GPUs in nodes of 8, with a fixed number of images per GPU (Goyal et al. 2017,"
            " arXiv:1706.02677).",
            ("from 8 GPUs to", "published"),
            [
                (f"{MANY}", f"an iteration takes {SLOWER:.0f}% longer"),
                ("256", f"a scaling efficiency of about {EFFICIENT:.0f}%"),
            ],
        ),
        [
            Reading(
                f"What is the efficiency on {MANY} GPUs, over that on {FEW}?",
                [Step("1 over 1 + the slowdown", 100 / (1 + SLOWER / 100), "%")],
                "It is less than at 256 GPUs, as it should be: the two published numbers agree.",
            ),
            Reading(
                f"Suppose that the computation of each GPU varies by {sigma:g}% (one standard deviation), and all wait"
                f" for the slowest. On average, the slowest of {FEW} is then {few:.2f}% above the mean, the slowest of"
                f" {MANY} {many:.2f}%. By what percentage does that alone lengthen a step?",
                [Step("(1 + slowest of many) / (1 + slowest of few) - 1", grown, "%")],
                "Both runs have waits, so only the difference counts.",
            ),
            Reading(
                "Which share of the published slowdown is that? What would you look for in a trace to confirm it?",
                [Step("Of the slowdown", 100 * grown / SLOWER, "%")],
                "Look for waits at the allreduce that are caused by a different rank in each step, while transfer"
                " stays the same.",
            ),
        ],
        Plan(
            "This is a trace of four ranks that synchronize in each step. They compute for"
            f" {', '.join(show(each, 's', 4) for each in computed)}; the run takes {show(float(found.span), 's', 4)};"
            f" serialization is {found.efficiency.serialization:.4f}, transfer {found.efficiency.transfer:.4f}.",
            [
                Line(f"Load balance is {100 * found.efficiency.load_balance:.1f}%."),
                Line(f"On average, ranks do not compute for {outside:.1f}% of the time."),
                Line(
                    f"Rank {waiting} waits longest, so rank {waiting} is the slow one.",
                    "It waits because it finishes first. The slow rank is the one that computes longest.",
                    [Step("The rank to look at", late.rank)],
                ),
                Line(
                    f"An ideal network would shorten the run by {outside:.1f}%.",
                    "Only transfer is due to the network.",
                    [Step("1 - transfer", transfer, "%")],
                ),
                Line("If all ranks had the mean of the work, most of the waits would vanish."),
            ],
        ),
        Choice(
            "The workflow of this module has eight ranks: some simulate, the others train. A sample takes 4 steps of"
            f" the simulation, and ranks vary by {JITTER:.0%}. Next month, a sample may take 2 steps, or 8. Choose one"
            " placement for the whole term, using the page's experiment, and say what you would watch.",
            [
                Option(
                    coupled.ALL
                    if ranks == coupled.SHARED
                    else f"{ranks} + {coupled.RANKS - ranks}",
                    [
                        Step("4 steps", now[ranks], "s"),
                        Step("2 steps", half[ranks], "s"),
                        Step("8 steps", twice[ranks], "s"),
                    ],
                    WHEN[ranks],
                )
                for ranks in CHOSEN
            ],
            {
                "has the times of at least three placements, for at least two lengths of a sample": 2,
                "chooses one that no other beats at all lengths, or names what outweighs the seconds": 1,
                "names the wait to watch, and the rank to move when it grows": 1,
            },
        ),
    )
