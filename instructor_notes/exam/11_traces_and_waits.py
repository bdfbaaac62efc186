"""Exam questions of module 11, traces and waits."""

from lib_dlhpc.explore.traces import coupled, waits
from lib_dlhpc.explore.traces.waits import IN_TURN, NETWORKS, NOBODY, Setting, analyzed
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.questions import Question

LATE = Setting(how="sends late")
idle = 100 * (1 - analyzed(Setting()).efficiency.parallel)
ideal = waits.gain_of_ideal_network(Setting())
spans = [analyzed(Setting(network=rate)).span for rate in NETWORKS.values()]
nobody, late = analyzed(Setting(NOBODY)).span, analyzed(LATE).span
USUAL, MOST = 25, 45
balance = (3 * USUAL + MOST) / (4 * MOST)
SERIAL, TRANSFER = 0.9, 0.95
shared = coupled.Setting(coupled.SHARED)
found = coupled.best(shared)
turns = next(way for way in coupled.ways(shared) if coupled.number_of(way) == coupled.SHARED)
slow = next(way for way in coupled.ways(coupled.Setting()) if coupled.number_of(way) == 1)


def deeper(depth: int) -> float:
    """Return how many times as long 1 of 8 simulating takes with a deeper buffer."""
    setting = coupled.Setting(depth=depth)
    return (
        next(w for w in coupled.ways(setting) if coupled.number_of(w) == 1).seconds / slow.seconds
    )


QUESTIONS = [
    Question(
        "ideal network",
        "Four ranks, of which one computes half as long again as the others in each step; the ranks do not"
        f" compute for {idle:.0f} % of the time. By how much would an ideal network shorten the run?",
        f"{ideal:.0f} %",
        {
            f"{idle:.0f} %": "Communication time is network time.",
            f"{idle / 2:.0f} %": "Half of the time in MPI is on the wire.",
            f"{0:.0f} %": "If ranks wait, the network is idle.",
        },
        "They wait for rank 2, which computes longer; hardly anything is on the wire meanwhile.",
    ),
    Question(
        "faster network",
        f"Four ranks, of which one is late in each step: the run takes {show(spans[1], 's')} on 10 Gbit/s. On"
        " 100 Gbit/s?",
        show(spans[2], "s"),
        {
            show(spans[1] / 10, "s"): "A faster network removes waits.",
            show(nobody, "s"): "Without the network's delay nobody is late.",
            show(spans[1] / 2, "s"): "Half of any run is communication.",
        },
        "Waits are for a rank, and the rank is as late as before.",
    ),
    Question(
        "longest wait",
        "In a trace of 64 ranks, rank 17 waits longest in the allreduce. What about rank 17?",
        "It comes first: look for the last to come",
        {
            "It is the slow one": "The rank that waits longest is the slow one.",
            "It has a slow link": "A long bar of MPI is a long transfer.",
            "It has the most work": "Who waits has been given too much.",
        },
        "Its wait is long because its own work was short.",
    ),
    Question(
        "sends late",
        "All ranks compute for the same time, and rank 2 sends its messages late. Load balance is"
        f" {analyzed(LATE).efficiency.load_balance:.2f}; with nobody"
        f" late the run takes {show(nobody, 's')}. And now?",
        show(late, "s"),
        {
            show(nobody, "s"): "Balance the average and waits vanish.",
            show(nobody * 0.5 + late * 0.5, "s"): "Half of a delay is hidden behind computing.",
            show(
                nobody * analyzed(LATE).efficiency.load_balance / 2, "s"
            ): "A balanced run is twice as fast.",
        },
        f"Others wait for its messages: serialization is {analyzed(LATE).efficiency.serialization:.2f}.",
    ),
    Question(
        "each in turn",
        f"With rank 2 slow in every step the run takes {show(analyzed(Setting()).span, 's')}. Now each rank is"
        " slow in turn, so that all compute for the same"
        " time over the run. How long does it take?",
        show(analyzed(Setting(IN_TURN)).span, "s"),
        {
            show(nobody, "s"): "Balance the average and waits vanish.",
            show(
                (nobody + analyzed(Setting(IN_TURN)).span) / 2, "s"
            ): "Being late in turn halves the wait.",
            show(
                analyzed(Setting(IN_TURN)).span * 4 / 3, "s"
            ): "Four late ranks cost more than one.",
        },
        "Ranks meet in each step, and in each another is late: balance each step, not the sum.",
    ),
    Question(
        "deeper buffer",
        "One of 8 ranks simulates, seven train and wait for samples. The buffer gets four times as deep. How"
        " many times as long does the run take?",
        f"{deeper(8):.2f}",
        {
            f"{2 / 8:.2f}": "A deeper buffer makes a coupled run faster.",
            f"{(2 / 8) ** 0.5:.2f}": "A buffer hides half of the waits.",
            f"{8 / 4:.2f}": "A deeper buffer makes samples older, and waits longer.",
        },
        "The buffer is empty. A larger empty buffer is as empty.",
    ),
    Question(
        "nobody waits",
        "All 8 ranks simulate, then train, in turn: nobody waits for the other side, and the run takes"
        f" {show(turns.seconds, 's')}. Is it the best placement?",
        f"No: {coupled.named(found)} takes {show(found.seconds, 's')}",
        {
            "Yes, since nobody waits": "Nobody waits, so it is the best placement.",
            f"No: {coupled.named(slow)} takes {show(slow.seconds, 's')}": (
                "The more ranks train, the faster the training."
            ),
            "Yes, since every rank does the same work": "Equal work is the least time.",
        },
        "Eight ranks parallelize each of the two small jobs inefficiently; that time is in the exchange.",
    ),
    Question(
        "load balance",
        f"Three ranks compute for {USUAL} s each, a fourth for {MOST} s. What is the load balance?",
        f"{100 * balance:.0f} %",
        {
            f"{100 * USUAL / MOST:.0f} %": "Load balance compares the least with the most.",
            f"{100 * MOST / (3 * USUAL + MOST):.0f} %": "Load balance is the share of the busiest.",
            f"{100 * (1 - (MOST - USUAL) / MOST / 4):.0f} %": "Only one of four ranks loses time.",
        },
        "The mean over the busiest.",
    ),
    Question(
        "product",
        f"Load balance {100 * balance:.0f} %, serialization {100 * SERIAL:.0f} %, transfer {100 * TRANSFER:.0f}"
        " %. For what share of the time do ranks compute?",
        f"{100 * balance * SERIAL * TRANSFER:.0f} %",
        {
            f"{100 * balance:.0f} %": "The smallest factor is the efficiency.",
            f"{100 * (balance + SERIAL + TRANSFER) / 3:.0f} %": "Factors are averaged.",
            f"{100 * (balance - (1 - SERIAL) - (1 - TRANSFER)):.0f} %": "Losses are added.",
        },
        "The factors multiply to the parallel efficiency.",
    ),
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
