"""Exam questions of module 11, traces and waits."""

from lib_dlhpc.explore.traces import coupled
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import Step
from lib_dlhpc.teaching.questions import Draw, Open, Question


def percent(share: float) -> str:
    """Return a share as a percentage with a digit after the point."""
    return f"{100 * share:.1f}%"


def ideal_network(draw: Draw) -> Question:
    """What an ideal network saves where a rank is slow."""
    balance, serial = draw.between(60, 85, 1) / 100, draw.between(80, 95, 1) / 100
    transfer = draw.between(82, 97, 1) / 100
    idle = 1 - balance * serial * transfer
    return Question(
        "ideal network",
        f"For {percent(idle)} of the time, ranks do not compute. Load balance is {100 * balance:.0f}%, serialization"
        f" {100 * serial:.0f}%, transfer {100 * transfer:.0f}%. By how much would an ideal network shorten the run?",
        percent(1 - transfer),
        {
            percent(idle): "Communication time is network time.",
            percent(idle / 2): "Half of the time in MPI is on the wire.",
            percent(1 - serial * transfer): "All waiting for messages is due to the network.",
        },
        "Only the transfer factor is due to the network; the rest is waiting for other ranks, which compute for as"
        " long as before.",
        [Step("1 - transfer", 100 * (1 - transfer), "%")],
    )


def faster_network(draw: Draw) -> Question:
    """A faster network for a late rank."""
    late, slow, times = draw.between(35, 90, 5), draw.any([10, 20, 25]), draw.any([4, 8])
    span = draw.between(12.2, 58.0, 0.2)
    return Question(
        "faster network",
        f"One of four ranks computes {late}% longer in each step. The run takes {show(span, 's')} on {slow} Gbit/s,"
        f" and nearly all waits are for that rank. About how long does it take on {slow * times} Gbit/s?",
        show(span, "s"),
        {
            show(span / times, "s"): "A faster network removes waits.",
            show(span / (1 + late / 100), "s"): "Without the network's delay nobody is late.",
            show((span + span / times) / 2, "s"): "Half of any run is communication.",
        },
        "The others wait for a rank, and that rank is as late as before.",
        [Step("The late rank computes as before, and all wait for it", span, "s")],
    )


def each_in_turn(draw: Draw) -> Question:
    """Another rank is late in each step."""
    late, nobody = draw.between(35, 90, 5), draw.between(9.2, 30.0, 0.2)
    always = nobody * (1 + late / 100)
    return Question(
        "each in turn",
        f"With rank 2 of four computing {late}% longer in every step, a run takes {show(always, 's')}; with no slow"
        f" rank, {show(nobody, 's')}. Now each rank is slow in turn, so that over the run all compute for the same"
        " time. Ranks synchronize in each step. About how long does the run take?",
        show(always, "s"),
        {
            show(nobody, "s"): "Balance the average and waits vanish.",
            show((nobody + always) / 2, "s"): "Being late in turn halves the wait.",
            show(nobody * (1 + late / 400), "s"): "Four ranks share the delay.",
        },
        "Ranks synchronize in each step, and each step has a late rank: balance each step, not the sum.",
        [
            Step("A step, relative to one without a late rank", 1 + late / 100),
            Step("All steps, as with rank 2", always, "s"),
        ],
    )


def sends_late(draw: Draw) -> Question:
    """Waits of a run whose load is balanced."""
    computed, share = draw.between(9.2, 30.0, 0.2), draw.between(52, 88, 1)
    span = 100 * computed / share
    return Question(
        "sends late",
        f"All ranks compute for {show(computed, 's')}, and rank 2 sends its messages late. Load balance is {1:.2f},"
        f" parallel efficiency {share}%. How long does the run take?",
        show(span, "s"),
        {
            show(computed, "s"): "Balance the average and waits vanish.",
            show((computed + span) / 2, "s"): "Half of a delay is hidden behind computing.",
            show(
                computed * (2 - share / 100), "s"
            ): "The lost time is a share of the computing time.",
        },
        "Other ranks wait for its messages: the lost efficiency is serialization.",
        [Step("Computing time over parallel efficiency", span, "s")],
    )


def load_balance(draw: Draw) -> Question:
    """The mean over the busiest."""
    usual = draw.between(12, 40, 1)
    ranks, most = draw.between(4, 10, 1), usual + draw.between(6, 40, 1)
    mean = ((ranks - 1) * usual + most) / ranks
    return Question(
        "load balance",
        f"{ranks - 1} ranks compute for {usual} s each, and one more for {most} s. What is the load balance?",
        percent(mean / most),
        {
            percent(usual / most): "Load balance compares the least with the most.",
            percent(most / (mean * ranks)): "Load balance is the busiest rank's share.",
            percent(1 - (most - usual) / most / ranks): "Only one rank loses time.",
        },
        "The mean over the busiest.",
        [Step("Mean", mean, "s"), Step("Over the busiest", 100 * mean / most, "%")],
    )


def product(draw: Draw) -> Question:
    """The three factors of parallel efficiency."""
    balance, serial, transfer = (draw.between(60, 95, 1) / 100 for _ in range(3))
    return Question(
        "product",
        f"Load balance is {100 * balance:.0f}%, serialization {100 * serial:.0f}%, transfer {100 * transfer:.0f}%. For"
        " what share of the time do ranks compute?",
        percent(balance * serial * transfer),
        {
            percent(min(balance, serial, transfer)): "The smallest factor is the efficiency.",
            percent((balance + serial + transfer) / 3): "Factors are averaged.",
            percent(balance + serial + transfer - 2): "Losses are added.",
        },
        "The factors multiply to the parallel efficiency.",
        [
            Step("Load balance times serialization", 100 * balance * serial, "%"),
            Step("Times transfer", 100 * balance * serial * transfer, "%"),
        ],
    )


def nobody_waits(draw: Draw) -> Question:
    """A placement without waits that is not the best."""
    setting = coupled.Setting(coupled.SHARED, jitter=draw.of([0.05, 0.15, 0.2]))
    found = coupled.best(setting)
    turns = next(way for way in coupled.ways(setting) if coupled.number_of(way) == coupled.SHARED)
    return Question(
        "nobody waits",
        "All 8 ranks first simulate, then train, in turn: no rank waits for the other job, and the run takes"
        f" {show(turns.seconds, 's')}. If {found.simulating} ranks simulate and {found.training} train at the same"
        f" time, some wait for others, and yet the run takes {show(found.seconds, 's')}. How can that be?",
        "Less exchange in each job saves more than waits cost",
        {
            "It cannot, since nobody waited before": "No rank waits, so it is the best placement.",
            "More ranks train than before": "The more ranks train, the faster the training.",
            "The work of the ranks is better balanced than before": "Equal work is the least time.",
        },
        "Eight ranks parallelize each of the two small jobs inefficiently: the time goes into the exchange.",
    )


OPEN = Open(
    "A trace of 128 ranks shows that 40% of the time is in MPI calls. Your manager wants a network that is twice as"
    " fast. Write down what you look at in the trace, in which order, and what would make you agree.",
    "Split the time in MPI into transfer and waits: load balance, serialization, transfer. Find the rank that arrives"
    " last in each step, not the one that waits longest, and whether it is always the same. Simulate with an ideal"
    " network: only what that saves is due to the network. Agree if transfer is the lowest factor.",
    {
        "separates waiting from transfer, with the three factors": 3,
        "looks for the rank that arrives last, and whether it changes from step to step": 2,
        "names the result that would justify the network": 1,
    },
)

QUESTIONS = [
    ideal_network,
    faster_network,
    Question(
        "longest wait",
        "In a trace of 64 ranks, rank 17 waits longest in the allreduce. What does that say about rank 17?",
        "It arrives first in each step",
        {
            "It is the slow one": "The rank that waits longest is the slow one.",
            "It has a slow link": "A long bar of MPI is a long transfer.",
            "It has the most work to do": "A rank that waits has been given too much.",
        },
        "Its wait is long because its own work was short: look for the rank that arrives last.",
    ),
    sends_late,
    each_in_turn,
    Question(
        "deeper buffer",
        "One of 8 ranks simulates, and seven train and wait for samples. The buffer is made four times as deep. The"
        " run",
        "takes as long as before",
        {
            "takes a quarter of the time": "A deeper buffer makes a coupled run faster.",
            "takes half of the time": "A buffer hides half of the waits.",
            "takes longer": "A deeper buffer makes samples older, and waits longer.",
        },
        "The buffer is empty, and a larger buffer would be just as empty.",
    ),
    nobody_waits,
    load_balance,
    product,
    Question(
        "feed training",
        "Training ranks wait for samples: a batch takes 20 ms to produce and 10 ms to train on. What do you do?",
        "Let some training ranks simulate instead",
        {
            "Double the buffer": "A deeper buffer makes a coupled run faster.",
            "Buy a faster network for the samples": "A faster network removes waits.",
            "Add training ranks": "The side that waits needs help.",
        },
        "The samples have not been produced yet: move ranks to the bottleneck, until both sides take equally long.",
    ),
]
