"""Exam questions of module 08, memory and out of core."""

from lib_dlhpc.explore.memory_wall import ledger, outside, ways
from lib_dlhpc.explore.memory_wall.ledger import Setting
from lib_dlhpc.explore.memory_wall.outside import Setting as Away
from lib_dlhpc.explore.memory_wall.ways import Setting as Step
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.questions import Question

weights, state, activations = ledger.shares(Setting())
course = ledger.in_time(Setting())
place = int(course.bytes.argmax())
needed = {batch: outside.needed(Away(batch=batch)).required for batch in (4, 8)}
sent = ways.sent(3, 4) / ways.sent(0, 4)
GIGABYTES, FORWARD = 20, 0.25


def cost(name: str, **step: object) -> float:
    """Return by how many percent a way around the wall is slower than the run as it is."""
    setting = Step(**step)
    return 100 * (ways.way(setting, name).seconds / ways.way(setting, "as it is").seconds - 1)


QUESTIONS = [
    Question(
        "activations",
        f"GPT-2 with 1.5 billion weights ({show(weights, 'B')} in 16 bits) on 4 samples of 1,024 tokens. How"
        " much do its activations take at the peak?",
        show(activations, "B"),
        {
            show(weights, "B"): "Activations are small.",
            show(state / 2, "B"): "Activations are as large as the optimizer state.",
            show(activations / 48, "B"): "Only the activations of one layer are stored.",
        },
        "Backward needs the outputs of every layer, for every sample.",
    ),
    Question(
        "whole state",
        f"The weights take {show(weights, 'B')} in 16 bits. With Adam in mixed precision, how much do weights,"
        " gradients and optimizer state take?",
        show(state, "B"),
        {
            show(weights, "B"): "A model of 3 GB needs 3 GB.",
            show(2 * weights, "B"): "Training adds a gradient for each weight, no more.",
            show(4 * weights, "B"): "Adam's moments have 16 bits, like the weights.",
        },
        "2 B of weight and 2 B of gradient, 12 B of fp32 copy and moments.",
    ),
    Question(
        "peak",
        "When in a step does memory peak, if activations are stored?",
        f"Where forward turns to backward (here: {course.what[place]} of {course.layer[place]})",
        {
            "In the layer with the most weights": "The peak is in the largest layer.",
            "At the update, when the optimizer state is read": "The optimizer state is there only at the update.",
            "At the end of backward, when all gradients exist": "Gradients outweigh activations.",
        },
        "All activations are stored then; from there on each layer frees its own.",
    ),
    Question(
        "split for speed",
        "A replica does not fit on one of 8 GPUs; split over all 8 it does. The batch may still grow. Is the"
        " split for speed?",
        "No, for memory: it costs time",
        {
            "Yes, all GPUs compute at once": "Model parallel is for speed.",
            "Yes, smaller layers run at a higher rate": "Small kernels fill a GPU better.",
            "No, and it never can be": "Model parallel is never for speed.",
        },
        "Eight replicas with eight times the samples would do the same work without an allreduce in each"
        " layer, if they fitted.",
    ),
    Question(
        "zero 3",
        "Gradients are accumulated over 4 microbatches. Plain data parallelism allreduces them once a step."
        " How many times the bytes does ZeRO 3 send?",
        f"{sent:.1f}",
        {
            f"{sent / sent:.1f}": "ZeRO costs nothing.",
            f"{3 / 2:.1f}": "Weights are gathered once a step.",
            f"{4:.1f}": "Each microbatch allreduces once.",
        },
        "In each microbatch two all-gathers and a reduce-scatter, 3 n for 2 n once a step, and the embedding's"
        " table again.",
    ),
    Question(
        "recomputation on a slow network",
        "16 GPUs on two 25 Gb/s links. Full recomputation repeats the forward pass. How much longer is a step"
        " than without?",
        f"{cost('recompute all'):.1f} %",
        {
            f"{100 / 3:.1f} %": "Recomputation costs a third.",
            f"{100 / 2:.1f} %": "Forward is half of the computation.",
            f"{100 / 6:.1f} %": "Half of the recomputation is overlapped.",
        },
        "A third of the compute; but communication is the bottleneck here, and it overlaps.",
    ),
    Question(
        "nine tenths activations",
        "Nine tenths of the memory are activations. Which of these does not help at all?",
        "ZeRO 1",
        {
            "Full recomputation": "Recomputation saves time, not memory.",
            "Smaller microbatches": "The batch decides, not the microbatch.",
            "Offloading activations to the host": "Out of core is hopelessly slow.",
        },
        "It shards the optimizer state. Ask which term is too large before you name a technique.",
    ),
    Question(
        "offload hidden",
        f"A forward pass takes {show(FORWARD, 's')}, backward twice as long, and {GIGABYTES} GB of activations"
        " are offloaded. How fast must the host"
        " link be to hide it?",
        show(GIGABYTES * 1e9 / FORWARD, "B/s"),
        {
            show(GIGABYTES * 1e9 / (3 * FORWARD), "B/s"): "The whole step is there to hide it.",
            show(
                GIGABYTES * 1e9 / (2 * FORWARD), "B/s"
            ): "The way back, in the longer pass, decides.",
            show(2 * GIGABYTES * 1e9 / FORWARD, "B/s"): "Both directions share forward.",
        },
        "They leave during forward, which is the shorter pass.",
    ),
    Question(
        "larger batch",
        f"Hiding the offload of GPT-2's activations takes {show(needed[4], 'B/s')} with 4 samples. With 8?",
        show(needed[8], "B/s"),
        {
            show(2 * needed[4], "B/s"): "A larger batch needs a faster link.",
            show(needed[4] / 2, "B/s"): "A longer step hides more.",
            show(needed[4] * 2**0.5, "B/s"): "Bytes grow faster than the time.",
        },
        "Bytes and seconds grow alike.",
    ),
    Question(
        "fast enough",
        f"The host link has {show(2 * needed[4], 'B/s')}, prefetching. How many times as long as in core does a"
        " step take that offloads activations?",
        f"{outside.seconds(Away(link=2 * needed[4]), 'prefetched') / outside.seconds(Away(), 'in core'):.1f}",
        {
            f"{outside.seconds(Away(), 'page by page') / outside.seconds(Away(), 'in core'):.0f}": (
                "Out of core is hopelessly slow."
            ),
            f"{2:.1f}": "Every byte is moved twice, so a step takes twice as long.",
            f"{4 / 3:.1f}": "Moving costs what recomputation costs.",
        },
        "Above the bandwidth that hides it, it is free.",
    ),
]
