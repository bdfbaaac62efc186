"""Exam questions of module 09, state and failures."""

from math import sqrt

from lib_dlhpc.explore.failures import ways
from lib_dlhpc.explore.failures.interval import DAY, HOUR, MINUTE, found
from lib_dlhpc.explore.failures.interval import Setting as Run
from lib_dlhpc.explore.failures.ways import BEST
from lib_dlhpc.explore.failures.ways import Setting as Saved
from lib_dlhpc.prediction.intervals import system_mtbf, young
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.questions import Draw, Question

GPT3 = "GPT-3, 175 G weights"
RUNS = [
    Run(8192, 90 * DAY, GPT3, 10e9, 5 * MINUTE),
    Run(4096, 30 * DAY, GPT3, 20e9, 5 * MINUTE),
    Run(16384, 120 * DAY, GPT3, 25e9, 20 * MINUTE),
]


def lost(run: Run, seconds: float) -> float:
    """Return the percentage of the time that is lost with a checkpoint at an interval in s."""
    return 100 * (1 - float(found(run._replace(interval=seconds)).goodput))


def saved(setting: Saved, way: str) -> float:
    """Return the percentage that is lost with a way to save."""
    return 100 * (1 - float(ways.found(setting, way).goodput))


def which_interval(draw: Draw) -> Question:
    """An interval near Young's root."""
    save, hours = draw.of([(30, 6), (120, 4), (90, 12), (20, 24)])
    root = float(young(save, hours * HOUR))
    near = root * draw.of([0.97, 1.04, 1.03])
    return Question(
        "which interval",
        f"A checkpoint takes {save} s, the machine fails once in {hours} hours. Which of these intervals loses least?",
        show(near, "s"),
        {
            show(near / 8, "s"): "Checkpoint as often as you can.",
            show(hours * HOUR, "s"): "Save once for each failure that you expect.",
            show(5 * hours * HOUR, "s"): "Failures are rare, so ignore them.",
        },
        f"Young's root lies near it: {show(root, 's')}.",
    )


def as_often_as_you_can(draw: Draw) -> Question:
    """What frequent checkpoints take."""
    save, minutes = draw.of([20, 40, 90, 120]), draw.of([3, 4, 7])
    share = 100 * save / (save + 60 * minutes)
    return Question(
        "as often as you can",
        f"A checkpoint takes {save} s; failures are rare. With a checkpoint after every {minutes} minutes of training,"
        " what share of the time do the checkpoints take?",
        f"{share:.1f} %",
        {
            f"{100 * save / HOUR:.1f} %": "A minute is a small part of an hour.",
            f"{0:.1f} %": "Saving is free if it is frequent, since little is new.",
            f"{share * 2:.1f} %": "Each failure doubles what was saved.",
        },
        "Its time over that of training and checkpoint together.",
    )


def stall(draw: Draw) -> Question:
    """For how long a node copies its shard."""
    (weights, nodes), link = draw.of([(70, 64), (180, 128), (400, 512)]), draw.of([20, 40])
    shard = 14 * weights * 1e9 / nodes
    copied, written = shard / 8 / (link * 1e9), draw.of([30, 45])
    return Question(
        "stall",
        f"{weights} billion weights with 14 B of state each are sharded over {nodes} nodes of 8 GPUs. Each GPU copies"
        f" its shard to the host, at {link} GB/s; then it is written in the background, which takes {written} s. For"
        " how long does training stall?",
        show(copied, "s"),
        {
            show(written, "s"): "A checkpoint stops training for as long as it takes to write.",
            show(written / 2, "s"): "Writing and training take turns.",
            show(written / 8, "s"): "The eight GPUs of a node write one after another.",
        },
        f"Only the copy must see an unchanged state: {show(shard / 8, 'B')} per GPU.",
    )


def asynchronous_loss(draw: Draw) -> Question:
    """What is still lost with asynchronous checkpoints."""
    setting = Saved(GPT3, interval=draw.of([15, 30, 45]) * MINUTE, rate=draw.of([10e9, 20e9]))
    plain, background = (saved(setting, way) for way in ("synchronous", "asynchronous"))
    best = saved(setting._replace(interval=BEST), "asynchronous")
    return Question(
        "asynchronous loss",
        f"A network of 175 billion weights on 2,048 nodes. Synchronous checkpoints every {show(setting.interval, 's')}"
        f" take {show(float(ways.found(setting, 'synchronous').saving.blocked), 's')} each and lose {plain:.1f} % of"
        " the time. About how much do asynchronous ones lose at the same interval?",
        f"{background:.1f} %",
        {
            f"{0:.1f} %": "Then asynchronous saving removes the loss.",
            f"{plain:.1f} %": "Written is written, no matter who waits.",
            f"{best:.1f} %": "The gain does not depend on the interval.",
        },
        f"Lost work and restarts stay. It makes a short interval affordable: {best:.1f} % at its best.",
    )


def mtbf_of_a_machine(draw: Draw) -> Question:
    """Rates of failures add up."""
    days, nodes = draw.of([150, 200, 300, 400]), draw.of([500, 800, 1500])
    return Question(
        "mtbf of a machine",
        f"A node fails once in {days} days. How often does one of {nodes:,} nodes fail?",
        f"once in {24 * days / nodes:.1f} h",
        {
            f"once in {days} days": "Failures are rare, so ignore them.",
            f"once in {days / nodes**0.5:.1f} days": "Failures add like noise.",
            f"once in {24 * days / nodes / 8:.1f} h": (
                "Each of the 8 GPUs of a node fails as often as the node."
            ),
        },
        "Rates add up: the MTBF of a node over the number of nodes.",
    )


def off_the_optimum(draw: Draw) -> Question:
    """How flat the optimum is."""
    run = draw.of(RUNS)
    best = float(found(run).best)
    at_best, twice = (lost(run, seconds) for seconds in (best, 2 * best))
    restarts = 100 * float(found(run._replace(interval=best)).shares["restarts"])
    return Question(
        "off the optimum",
        f"The best interval loses {at_best:.1f} % of the time, of which {restarts:.1f} % are restarts. You save half as"
        " often. About how much do you lose?",
        f"{twice:.1f} %",
        {
            f"{2 * at_best:.1f} %": "You must hit the optimum.",
            f"{min(4 * at_best, 99):.1f} %": "The loss grows with the square of the interval.",
            f"{at_best / 2:.1f} %": "Half as many checkpoints cost half.",
        },
        "The optimum is flat, since half of what is not restarts falls when the other half rises. Find the"
        " decade, not the digit.",
    )


def young_s_interval(draw: Draw) -> Question:
    """Young's root, with the failures of all nodes."""
    save, nodes, days = draw.of([30, 90, 150]), draw.of([600, 1200]), draw.of([150, 400])
    mtbf = float(system_mtbf(days * DAY, nodes))
    own = float(young(save, mtbf))
    return Question(
        "young",
        f"{nodes:,} nodes, each of which fails once in {days} days; a checkpoint takes {save} s. What is Young's"
        " interval?",
        show(own, "s"),
        {
            show(float(young(save, days * DAY)), "s"): "Failures are rare, so ignore them.",
            show(own / sqrt(2), "s"): "The root of cost times MTBF.",
            show(mtbf / 2, "s"): "Save in the middle between two failures.",
        },
        "The root of 2 C M, with the MTBF of all nodes together.",
    )


def bytes_of_a_version(draw: Draw) -> Question:
    """What a version adds to a store that keeps each tensor once."""
    inputs, classes = draw.of([512, 1024, 2048]), draw.of([20, 100])
    thousands, versions = draw.of([800, 3000]), draw.of([4, 6])
    layer = 4 * (inputs + 1) * classes
    return Question(
        "bytes of a version",
        f"A network of {thousands} thousand weights in fp32 has {versions} versions. You train only its last layer"
        f" ({inputs:,} inputs, {classes} outputs) and save. With deduplication, how much is written?",
        show(layer, "B"),
        {
            show(thousands * 4e3, "B"): "A version is a copy of everything.",
            show(thousands * 4e3 / versions, "B"): "A version shares equally with all others.",
            show(layer / classes, "B"): "Only the class that changed is written.",
        },
        "Its weights and biases; all other tensors are stored already.",
    )


QUESTIONS = [
    which_interval,
    as_often_as_you_can,
    stall,
    asynchronous_loss,
    mtbf_of_a_machine,
    off_the_optimum,
    Question(
        "bad state",
        "A run diverged an hour ago, with a checkpoint every ten minutes, of which the newest is stored. What"
        " would have helped?",
        "Keeping versions, and continuing from an earlier one",
        {
            "Checkpoints every minute": "Checkpoint as often as you can.",
            "A second copy of the newest checkpoint": "A checkpoint is a backup.",
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
    young_s_interval,
    bytes_of_a_version,
]
