"""Exam questions of module 09, state and failures."""

from math import log, sqrt

from lib_dlhpc.prediction.failures.intervals import system_mtbf, young
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import Step
from lib_dlhpc.teaching.questions import Draw, Open, Question

HOUR, DAY = 3600.0, 86400.0


def which_interval(draw: Draw) -> Question:
    """An interval near Young's root."""
    save, hours = draw.between(90, 300, 10), draw.between(2.0, 8.0, 0.5)
    root = float(young(save, hours * HOUR))
    near = root * draw.any([0.97, 1.04, 1.03])
    return Question(
        "which interval",
        f"A checkpoint takes {save} s, and the machine fails once in {hours} hours. Which of these checkpoint"
        " intervals loses the least time?",
        show(near, "s"),
        {
            show(near / 8, "s"): "Checkpoint as often as you can.",
            show(hours * HOUR, "s"): "Save once for each expected failure.",
            show(2 * hours * HOUR, "s"): "Failures are rare, so ignore them.",
        },
        f"Young's root is close to it: {show(root, 's')}.",
        [Step("Young's root of 2 C M", root, "s")],
    )


def as_often_as_you_can(draw: Draw) -> Question:
    """What frequent checkpoints take."""
    save, minutes = draw.between(20, 150, 5), draw.between(2, 12, 1)
    share = 100 * save / (save + 60 * minutes)
    return Question(
        "as often as you can",
        f"A checkpoint takes {save} s; failures are rare. With a checkpoint after every {minutes} minutes of training,"
        " what share of the time do the checkpoints take?",
        f"{share:.2f}%",
        {
            f"{100 * save / HOUR:.2f}%": "A checkpoint is saved once per hour.",
            f"{100 * save / (60 * minutes):.2f}%": "The share is relative to the training between two checkpoints.",
            f"{100 * 2 * save / (2 * save + 60 * minutes):.2f}%": (
                "Each checkpoint is also read back."
            ),
        },
        "The share is the checkpoint's time over the time of training and checkpoint together.",
        [
            Step("From one checkpoint to the next", save + 60 * minutes, "s"),
            Step("The checkpoint over that", share, "%"),
        ],
    )


def stall(draw: Draw) -> Question:
    """For how long a node copies its shard."""
    weights, nodes = draw.between(20, 400, 10), draw.any([8, 16, 32, 64])
    link, rate = draw.between(10, 30, 2), draw.between(6, 16, 1)
    shard = 14 * weights * 1e9 / nodes
    copied, written = shard / 8 / (link * 1e9), shard / (rate * 1e9)
    return Question(
        "stall",
        f"{weights} billion parameters with 14 B of state each are sharded over {nodes} nodes of 8 GPUs. Each GPU"
        f" copies its shard to the host at {link} GB/s; then each node writes its shards in the background at {rate}"
        " GB/s. For how long does training stall?",
        show(copied, "s"),
        {
            show(written, "s"): "A checkpoint stops training for as long as it takes to write.",
            show(8 * copied, "s"): "The eight GPUs of a node copy one after another.",
            show(copied / 7, "s"): "Only the weights in 16 bits are copied.",
        },
        "Training has to wait only for the copy, which needs an unchanged state.",
        [Step("State on a GPU", shard / 8, "B"), Step("Over its link to the host", copied, "s")],
    )


def asynchronous_loss(draw: Draw) -> Question:
    """What is still lost with asynchronous checkpoints."""
    minutes, blocked = draw.between(15, 60, 5), draw.between(60, 300, 10)
    work, restarts = draw.between(2.0, 9.0, 0.5), draw.between(1.2, 4.0, 0.2)
    stalled = 100 * blocked / (60 * minutes + blocked)
    whole = work + restarts + stalled
    return Question(
        "asynchronous loss",
        f"Synchronous checkpoints after every {minutes} minutes of training take {blocked} s each; with them a run"
        f" loses {whole:.1f}% of its time, of which {restarts:.1f}% are restarts. About how much does it lose with"
        " asynchronous checkpoints at the same interval?",
        f"{work + restarts:.1f}%",
        {
            f"{restarts:.1f}%": "Then asynchronous saving removes the loss.",
            f"{whole:.1f}%": "Writing costs the same, no matter who waits.",
            f"{whole - restarts:.1f}%": "With the state in memory, there are no restarts.",
        },
        "The stall disappears; lost work and restarts remain. Asynchronous saving makes a shorter interval"
        " affordable.",
        [
            Step("The stall, as a share of checkpoint and interval", stalled, "%"),
            Step("The former loss minus the stall", whole - stalled, "%"),
        ],
    )


def mtbf_of_a_machine(draw: Draw) -> Question:
    """Rates of failures add up."""
    days, nodes = draw.between(60, 500, 10), draw.between(90, 390, 10)
    hours = 24 * days / nodes
    return Question(
        "mtbf of a machine",
        f"A node of 8 GPUs fails once in {days} days. How often does any of {nodes:,} nodes fail?",
        f"once in {hours:.2f} h",
        {
            f"once in {hours * nodes**0.5:.2f} h": "Failures add like noise.",
            f"once in {hours / 8:.2f} h": (
                "Each of the 8 GPUs of a node fails as often as the node."
            ),
            f"once in {log(2) * hours:.2f} h": "The mean is the time by which half of them have failed.",
        },
        "Failure rates add up: the MTBF is that of a node over the number of nodes.",
        [Step("MTBF of a node", 24 * days, "h"), Step("Over the nodes", hours, "h")],
    )


def off_the_optimum(draw: Draw) -> Question:
    """How flat the optimum is."""
    at_best = draw.between(3.0, 14.0, 0.1)
    restarts = round(at_best * draw.between(0.1, 0.4, 0.05), 1)
    twice = restarts + 1.25 * (at_best - restarts)
    return Question(
        "off the optimum",
        f"The best checkpoint interval loses {at_best:.1f}% of the time, of which {restarts:.1f}% are restarts. You"
        " save half as often. About how much do you lose?",
        f"{twice:.1f}%",
        {
            f"{2 * at_best:.1f}%": "You must hit the optimum.",
            f"{4 * at_best:.1f}%": "The loss grows with the square of the interval.",
            f"{at_best / 2:.1f}%": "Half as many checkpoints lose half as much.",
        },
        "The optimum is flat: apart from restarts, saving and lost work each cause half of the loss, and one falls"
        " when the other rises. Being right within a factor of two is enough; a factor of three costs two thirds"
        " more.",
        [
            Step(
                "Saving and lost work, which are equal at the best interval",
                at_best - restarts,
                "%",
            ),
            Step("Half of the one plus twice the other", 1.25 * (at_best - restarts), "%"),
            Step("Plus the restarts", twice, "%"),
        ],
    )


def young_s_interval(draw: Draw) -> Question:
    """Young's root, with the failures of all nodes."""
    save, nodes, days = (
        draw.between(30, 180, 10),
        draw.between(100, 390, 10),
        draw.between(60, 400, 10),
    )
    mtbf = float(system_mtbf(days * DAY, nodes))
    own = float(young(save, mtbf))
    return Question(
        "young",
        f"Each of {nodes:,} nodes fails once in {days} days; a checkpoint takes {save} s. What is Young's interval?",
        show(own, "s"),
        {
            show(float(young(save, days * DAY)), "s"): "All nodes fail as often as one.",
            show(own / sqrt(2), "s"): "The interval is the root of cost times MTBF.",
            show(mtbf / 2, "s"): "Save halfway between two failures.",
        },
        "The root of 2 C M, with the MTBF of all nodes together.",
        [Step("MTBF of all nodes", mtbf, "s"), Step("Root of 2 C M", own, "s")],
    )


def bytes_of_a_version(draw: Draw) -> Question:
    """What a version adds to a store that keeps each tensor once."""
    inputs, classes = draw.between(256, 1024, 64), draw.between(20, 100, 10)
    thousands, versions = draw.between(200, 800, 20), draw.between(3, 7, 1)
    layer = 4 * (inputs + 1) * classes
    return Question(
        "bytes of a version",
        f"A network of {thousands} thousand weights in fp32 has {versions} versions in a store with deduplication. You"
        f" train only its last layer ({inputs:,} inputs, {classes} outputs) and save. How much is written?",
        show(layer, "B"),
        {
            show(thousands * 4e3, "B"): "A version is a copy of everything.",
            show(thousands * 4e3 / versions, "B"): "The versions share the storage equally.",
            show(layer * versions, "B"): "The layer is written again for each version.",
        },
        "Only the layer's weights and biases are written; all other tensors are stored already.",
        [
            Step("Weights and biases of the layer", (inputs + 1) * classes),
            Step("Times 4 B", layer, "B"),
        ],
    )


EVERY, SAVING = 6 * 3600.0, 8 * 60.0
# A day of work a week, half of the interval for each failure.
MTBF = 7 * 86400 / (86400 / (EVERY / 2))
BEST = float(young(SAVING, MTBF))


def _lost(interval: float) -> float:
    """Return the share of the time that goes into checkpoints and lost work, to first order."""
    return SAVING / interval + interval / 2 / MTBF


OPEN = Open(
    "A run on 1,000 nodes saves its state only every six hours, because a checkpoint takes eight minutes, and loses a"
    " day of work to failures each week. Its owner asks for a faster file system. What do you compute, what do you"
    " change first, and what do you still not know?",
    f"A failure loses three hours on average, so a day a week is eight failures: an MTBF of {MTBF / 3600:.0f} h."
    f" Young's root of 2 C M is then {BEST / 3600:.1f} h, and loses {_lost(BEST):.0%} of the time, not"
    f" {_lost(EVERY):.0%}. Change the interval at once; then shorten the stall with asynchronous or sharded"
    " checkpoints before you buy anything. Unknown: how failures are spread in time, how long restarts take, and"
    " whether the saved state is good.",
    {
        f"computes the MTBF from the lost day, about {MTBF / 3600:.0f} h, and the interval that follows": 2,
        "changes the interval before the hardware, and quantifies the gain": 2,
        "shortens the stall by another way to save": 1,
        "names what the model leaves out": 1,
    },
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
        "A run diverged an hour ago. It saves a checkpoint every ten minutes and keeps only the newest. What would"
        " have helped?",
        "Keeping versions to go back to",
        {
            "Checkpoints every minute": "Checkpoint as often as you can.",
            "A second copy of the newest checkpoint": "A checkpoint is a backup.",
            "Saving synchronously": "A state that is saved while training waits is a good state.",
        },
        "If the state itself is bad, its newest copy is bad as well.",
    ),
    Question(
        "same bits",
        "A run is killed three times and resumes from its newest checkpoint each time. How do its final weights"
        " compare with those of an undisturbed run?",
        "Bitwise identical, if all state was restored",
        {
            "Different, since steps were computed twice": "Recomputed steps change the result.",
            "Equal on average over seeds": "A restart draws new random numbers.",
            "Better, since it saw more samples": "Repeated steps are more training.",
        },
        "The same weights, optimizer state, data order and seeds on the same number of ranks give the same steps, if"
        " kernels are deterministic.",
    ),
    young_s_interval,
    bytes_of_a_version,
]
