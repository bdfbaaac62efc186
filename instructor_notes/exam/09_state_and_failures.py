"""Exam questions of module 09, state and failures."""

from lib_dlhpc.explore.failures import ways
from lib_dlhpc.explore.failures.interval import DAY, HOUR, LLAMA_MTBF, MINUTE, found
from lib_dlhpc.explore.failures.interval import Setting as Run
from lib_dlhpc.explore.failures.versions import last_layer_bytes
from lib_dlhpc.explore.failures.ways import BEST
from lib_dlhpc.explore.failures.ways import Setting as Saved
from lib_dlhpc.prediction.intervals import system_mtbf, young
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.questions import Question

run = found(Run())
mtbf, best = float(run.mtbf), float(run.best)
ASKED = (5 * MINUTE, 20 * MINUTE, 3 * HOUR, DAY)


def lost(seconds: float) -> float:
    """Return the percentage of the time that is lost with a checkpoint at an interval in s."""
    return 100 * (1 - float(found(Run(interval=seconds)).goodput))


def saved(way: str, interval: float = Saved().interval) -> float:
    """Return the percentage that is lost with a way to save."""
    return 100 * (1 - float(ways.found(Saved(interval=interval), way).goodput))


least = min(ASKED, key=lost)
stall = float(ways.found(Saved(), "asynchronous").saving.blocked)
written = float(ways.found(Saved(), "asynchronous").saving.background)
COST, NODES, DAYS = 60.0, 1000, 250
own = float(young(COST, system_mtbf(DAYS * DAY, NODES)))
often = 100 * float(found(Run(interval=5 * MINUTE)).shares["checkpoints"])

QUESTIONS = [
    Question(
        "which interval",
        f"A checkpoint takes a minute, the machine fails once in {mtbf / HOUR:.0f} hours, a restart takes ten"
        " minutes. Which of these intervals loses least?",
        show(least, "s"),
        {
            show(ASKED[0], "s"): "Checkpoint as often as you can.",
            show(ASKED[2], "s"): "Save once for each failure that you expect.",
            show(ASKED[3], "s"): "Failures are rare, so ignore them.",
        },
        f"It loses {lost(least):.0f} %; the others {lost(ASKED[0]):.0f}, {lost(ASKED[2]):.0f} and"
        f" {lost(ASKED[3]):.0f} %. Young's root lies near it.",
    ),
    Question(
        "as often as you can",
        f"A checkpoint takes a minute, the machine fails once in {mtbf / HOUR:.0f} hours. With a checkpoint"
        " after every five minutes of training, what share of the time do the checkpoints take?",
        f"{often:.1f} %",
        {
            f"{100 * MINUTE / HOUR:.1f} %": "A minute is a small part of an hour.",
            f"{0:.1f} %": "Saving is free if it is frequent, since little is new.",
            f"{lost(5 * MINUTE) * 2:.1f} %": "Each failure doubles what was saved.",
        },
        "A minute of each six, less what failures cut off.",
    ),
    Question(
        "stall",
        f"Each node copies its shard to the host, then writes it in the background, which takes {written:.0f}"
        " s. For how long does training stall?",
        show(stall, "s"),
        {
            show(written, "s"): "A checkpoint stops training for as long as it takes to write.",
            show(written / 2, "s"): "Writing and training take turns.",
            show(written / 8, "s"): "The eight GPUs of a node write one after another.",
        },
        "Only the copy must see an unchanged state: some hundred MB a GPU over a host link of some fifty GB/s.",
    ),
    Question(
        "asynchronous loss",
        f"Synchronous checkpoints every 20 minutes lose {saved('synchronous'):.1f} % of the time. Asynchronous"
        " ones at the same interval?",
        f"{saved('asynchronous'):.1f} %",
        {
            f"{0:.1f} %": "Then asynchronous saving removes the loss.",
            f"{saved('synchronous'):.1f} %": "Written is written, no matter who waits.",
            f"{saved('asynchronous', BEST):.1f} %": "The gain does not depend on the interval.",
        },
        f"Lost work and restarts stay. It makes a short interval affordable: {saved('asynchronous', BEST):.1f}"
        " % at its best.",
    ),
    Question(
        "mtbf of a machine",
        f"A node fails once in {LLAMA_MTBF / DAY:.0f} days. How often does one of 2,048 nodes fail?",
        f"once in {mtbf / HOUR:.1f} h",
        {
            f"once in {LLAMA_MTBF / DAY:.0f} days": "Failures are rare, so ignore them.",
            f"once in {LLAMA_MTBF / 2048**0.5 / DAY:.1f} days": "Failures add like noise.",
            f"once in {LLAMA_MTBF / 16384 / HOUR:.1f} h": "Each of the 8 GPUs of a node fails as often as the node.",
        },
        "Rates add up: the MTBF of a node over the number of nodes.",
    ),
    Question(
        "off the optimum",
        f"The best interval loses {lost(best):.1f} % of the time. You save half as often. What do you lose?",
        f"{lost(2 * best):.1f} %",
        {
            f"{2 * lost(best):.1f} %": "The optimum must be hit.",
            f"{4 * lost(best):.1f} %": "The loss grows with the square of the interval.",
            f"{lost(best) / 2:.1f} %": "Half as many checkpoints cost half.",
        },
        "The optimum is flat, since half of what is not restarts falls when the other half rises. Find the"
        " decade, not the digit.",
    ),
    Question(
        "bad state",
        "A run diverged an hour ago, with a checkpoint every ten minutes, of which the newest is stored. What"
        " would have helped?",
        "Keeping versions, and continuing from an earlier one",
        {
            "Checkpoints every minute": "Checkpoint as often as you can.",
            "A second copy of the newest checkpoint": "A checkpoint is a spare.",
            "Saving synchronously": "A state that is saved at rest is a good state.",
        },
        "If the state itself is bad, the newest spare is bad as well.",
    ),
    Question(
        "same bits",
        "A run is killed three times and resumes from its newest checkpoint each time. Its final weights,"
        " compared with an undisturbed run?",
        "Bitwise identical, if state, data order and seeds are all restored on as many ranks",
        {
            "Different, since steps were computed twice": "Recomputed steps change the result.",
            "Equal on average over seeds": "A restart draws new random numbers.",
            "Better, since it saw more samples": "Repeated steps are more training.",
        },
        "The same state, samples and order of sums give the same steps, if kernels are deterministic.",
    ),
    Question(
        "young",
        f"{NODES:,} nodes, each of which fails once in {DAYS} days; a checkpoint takes {COST:.0f} s. What is"
        " Young's interval?",
        show(own, "s"),
        {
            show(float(young(COST, DAYS * DAY)), "s"): "Failures are rare, so ignore them.",
            show(own / 2**0.5, "s"): "The root of cost times MTBF.",
            show(
                system_mtbf(DAYS * DAY, NODES) / 2, "s"
            ): "Save in the middle between two failures.",
        },
        "The root of 2 C M, with the MTBF of all nodes together.",
    ),
    Question(
        "bytes of a version",
        "A network of 85 thousand weights in fp32 has five versions. You train only its last layer (256"
        " inputs, 10 outputs) and save. With"
        " deduplication, how much is written?",
        show(last_layer_bytes(), "B"),
        {
            show(85e3 * 4, "B"): "A version is a copy of everything.",
            show(85e3 * 4 / 5, "B"): "A version shares equally with all others.",
            show(last_layer_bytes() / 10, "B"): "Only the class that changed is written.",
        },
        "Its weights and biases; all other tensors are stored already.",
    ),
]
