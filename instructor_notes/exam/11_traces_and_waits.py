"""Exam questions of module 11, traces and waits."""

from lib_dlhpc.explore.traces import coupled, waits
from lib_dlhpc.explore.traces.waits import IN_TURN, NOBODY, Setting, analyzed
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.questions import Draw, Question

LATE = (0.35, 0.7, 0.9)  # of a step's work


def percent(share: float) -> str:
    """Return a share as a percentage with a digit after the point."""
    return f"{100 * share:.1f} %"


def ideal_network(draw: Draw) -> Question:
    """What an ideal network saves where a rank is slow."""
    setting = Setting(rank=draw.of([1, 3]), late=draw.of(LATE))
    idle, ideal = (
        1 - analyzed(setting).efficiency.parallel,
        waits.gain_of_ideal_network(setting) / 100,
    )
    return Question(
        "ideal network",
        f"Four ranks, of which one computes {100 * setting.late:.0f} % longer than the others in each step; the ranks"
        f" do not compute for {percent(idle)} of the time, most of which they wait for it. By how much would an ideal"
        " network shorten the run? About",
        percent(ideal),
        {
            percent(idle): "Communication time is network time.",
            percent(idle / 2): "Half of the time in MPI is on the wire.",
            percent(0): "If ranks wait, the network is idle.",
        },
        "They wait for the slow rank, which computes longer; hardly anything is on the wire meanwhile.",
    )


def faster_network(draw: Draw) -> Question:
    """A faster network for a late rank."""
    late, slow, times = draw.of(LATE), draw.of([20, 25]), draw.of([4, 8])
    spans = [analyzed(Setting(late=late, network=rate * 1e9)).span for rate in (slow, slow * times)]
    nobody = analyzed(Setting(NOBODY, network=slow * times * 1e9)).span
    return Question(
        "faster network",
        f"Four ranks, of which one computes {100 * late:.0f} % longer in each step: the run takes {show(spans[0], 's')}"
        f" on {slow} Gbit/s, and nearly all waits are for that rank. About how long on {slow * times} Gbit/s?",
        show(spans[1], "s"),
        {
            show(spans[0] / times, "s"): "A faster network removes waits.",
            show(nobody, "s"): "Without the network's delay nobody is late.",
            show(spans[0] / 2, "s"): "Half of any run is communication.",
        },
        "Waits are for a rank, and the rank is as late as before.",
    )


def each_in_turn(draw: Draw) -> Question:
    """Another rank is late in each step."""
    late = draw.of(LATE)
    always, turn, nobody = (analyzed(Setting(who, late=late)).span for who in (2, IN_TURN, NOBODY))
    return Question(
        "each in turn",
        f"With rank 2 computing {100 * late:.0f} % longer in every step the run takes {show(always, 's')}; with nobody"
        f" slow {show(nobody, 's')}. Now each rank is slow in turn, so that all compute for the same time over the run."
        " About how long does it take?",
        show(turn, "s"),
        {
            show(nobody, "s"): "Balance the average and waits vanish.",
            show((nobody + turn) / 2, "s"): "Being late in turn halves the wait.",
            show(turn * 4 / 3, "s"): "Four late ranks cost more than one.",
        },
        "Ranks meet in each step, and in each another is late: balance each step, not the sum.",
    )


def sends_late(draw: Draw) -> Question:
    """Waits of a run whose load is balanced."""
    late = draw.of(LATE)
    own = analyzed(Setting(how="sends late", late=late))
    computed = float(own.compute.mean())
    return Question(
        "sends late",
        f"All ranks compute for {show(computed, 's')}, and rank 2 sends its messages late. Load balance is"
        f" {own.efficiency.load_balance:.2f}, parallel efficiency {100 * own.efficiency.parallel:.1f} %. How long does"
        " the run take?",
        show(own.span, "s"),
        {
            show(computed, "s"): "Balance the average and waits vanish.",
            show((computed + own.span) / 2, "s"): "Half of a delay is hidden behind computing.",
            show(computed / 2, "s"): "A balanced run is twice as fast.",
        },
        f"Others wait for its messages: serialization is {own.efficiency.serialization:.2f}.",
    )


def load_balance(draw: Draw) -> Question:
    """The mean over the busiest."""
    usual, most = draw.of([(30, 42), (20, 50), (12, 30), (35, 60)])
    ranks = draw.of([5, 6, 10])
    mean = ((ranks - 1) * usual + most) / ranks
    return Question(
        "load balance",
        f"{ranks - 1} ranks compute for {usual} s each, one more for {most} s. What is the load balance?",
        percent(mean / most),
        {
            percent(usual / most): "Load balance compares the least with the most.",
            percent(most / (mean * ranks)): "Load balance is the share of the busiest.",
            percent(1 - (most - usual) / most / ranks): "Only one rank loses time.",
        },
        "The mean over the busiest.",
    )


def product(draw: Draw) -> Question:
    """The three factors of parallel efficiency."""
    balance, serial, transfer = draw.of(
        [(0.72, 0.85, 0.88), (0.83, 0.78, 0.9), (0.64, 0.92, 0.86), (0.9, 0.7, 0.8)]
    )
    return Question(
        "product",
        f"Load balance {100 * balance:.0f} %, serialization {100 * serial:.0f} %, transfer {100 * transfer:.0f} %. For"
        " what share of the time do ranks compute?",
        percent(balance * serial * transfer),
        {
            percent(min(balance, serial, transfer)): "The smallest factor is the efficiency.",
            percent((balance + serial + transfer) / 3): "Factors are averaged.",
            percent(balance + serial + transfer - 2): "Losses are added.",
        },
        "The factors multiply to the parallel efficiency.",
    )


def nobody_waits(draw: Draw) -> Question:
    """A placement without waits that is not the best."""
    setting = coupled.Setting(coupled.SHARED, jitter=draw.of([0.05, 0.15, 0.2]))
    found = coupled.best(setting)
    turns, slow = (
        next(way for way in coupled.ways(setting) if coupled.number_of(way) == number)
        for number in (coupled.SHARED, 1)
    )
    return Question(
        "nobody waits",
        "All 8 ranks simulate, then train, in turn: nobody waits for the other side, and the run takes"
        f" {show(turns.seconds, 's')}. Is it the best placement?",
        f"No: {coupled.named(found)} takes {show(found.seconds, 's')}",
        {
            "Yes, since nobody waits": "No rank waits, so it is the best placement.",
            f"No: {coupled.named(slow)} takes {show(slow.seconds, 's')}": (
                "The more ranks train, the faster the training."
            ),
            "Yes, since every rank does the same work": "Equal work is the least time.",
        },
        "Eight ranks parallelize each of the two small jobs inefficiently; that time is in the exchange.",
    )


QUESTIONS = [
    ideal_network,
    faster_network,
    Question(
        "longest wait",
        "In a trace of 64 ranks, rank 17 waits longest in the allreduce. What about rank 17?",
        "It comes first: look for the last to come",
        {
            "It is the slow one": "The rank that waits longest is the slow one.",
            "It has a slow link": "A long bar of MPI is a long transfer.",
            "It has the most work": "A rank that waits has been given too much.",
        },
        "Its wait is long because its own work was short.",
    ),
    sends_late,
    each_in_turn,
    Question(
        "deeper buffer",
        "One of 8 ranks simulates, seven train and wait for samples. The buffer gets four times as deep. The run",
        "takes as long as before",
        {
            "takes a quarter of the time": "A deeper buffer makes a coupled run faster.",
            "takes half of the time": "A buffer hides half of the waits.",
            "takes longer": "A deeper buffer makes samples older, and waits longer.",
        },
        "The buffer is empty. A larger empty buffer is as empty.",
    ),
    nobody_waits,
    load_balance,
    product,
    Question(
        "feed training",
        "Training ranks wait for samples: a batch takes 20 ms to produce and 10 ms to train on. What do you do?",
        "Let training ranks simulate, until both sides take equally long",
        {
            "Double the buffer": "A deeper buffer makes a coupled run faster.",
            "Buy a faster network for the samples": "A faster network removes waits.",
            "Add training ranks": "The side that waits needs help.",
        },
        "The samples have not been produced yet: move ranks to the bottleneck.",
    ),
]
