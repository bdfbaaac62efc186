"""Exam questions of module 08, memory and out of core."""

from lib_dlhpc.explore.memory_wall import ledger
from lib_dlhpc.explore.memory_wall.ledger import Setting
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import Step
from lib_dlhpc.teaching.questions import Draw, Open, Question

course = ledger.in_time(Setting("opt-1.3b"))
place = int(course.bytes.argmax())


def activations(draw: Draw) -> Question:
    """Activations, from what a block stores of a sample."""
    layers, hidden = draw.between(12, 20, 1), draw.between(1536, 4096, 256)
    heads, tokens, batch = hidden // 128, draw.any([1024, 2048]), draw.between(2, 4, 1)
    weights = 24 * layers * hidden**2
    linear = 34 * tokens * hidden
    block = linear + 5 * heads * tokens**2
    stored = batch * layers * block
    return Question(
        "activations",
        f"You train {layers} blocks of width {hidden:,} with {heads} heads: {show(weights, 'B')} of weights in 16"
        f" bits. The batch is {batch} samples of {tokens:,} tokens; attention is not fused. About how much memory do"
        " the activations of the blocks take at the peak?",
        show(stored, "B"),
        {
            show(weights, "B"): "Activations are small.",
            show(batch * layers * linear, "B"): "Attention stores nothing of its own.",
            show(stored / layers, "B"): "Only the activations of one layer are stored.",
        },
        "Backward needs the outputs of every layer, for every sample: s h (34 + 5 a s / h) bytes per block.",
        [
            Step("One block, one sample", block, "B"),
            Step("All blocks", layers * block, "B"),
            Step("All samples", stored, "B"),
        ],
    )


def adapters(draw: Draw) -> Question:
    """What fine-tuning with adapters holds."""
    billions, stored = draw.between(6, 14, 1), draw.between(20, 48, 2)
    inputs = draw.between(20, 32, 2)
    weights, state = 2e9 * billions, 14e9 * billions
    left = stored * (1 - inputs / 100) * 1e9
    return Question(
        "adapters",
        f"A model of {billions} billion parameters in bf16 is trained with Adam in mixed precision; the activations"
        f" take {stored} GB, of which {inputs}% are inputs of matmuls that are needed only for weight gradients. Now"
        " the weights are frozen, and adapters a thousandth of their size are trained, whose own memory is"
        " negligible. How much do weights, gradients, optimizer state and activations take?",
        show(weights + left, "B"),
        {
            show(weights, "B"): "Frozen layers store no activations.",
            show(weights + stored * 1e9, "B"): "Frozen weights change nothing about activations.",
            show(weights + state + left, "B"): "Frozen weights still have gradients and moments.",
        },
        "Gradients pass through frozen layers, so most activations are still needed; weight gradients and optimizer"
        " state are not.",
        [
            Step("Frozen weights, 2 B each", weights, "B"),
            Step("Activations without those inputs", left, "B"),
            Step("Both", weights + left, "B"),
        ],
    )


def whole_state(draw: Draw) -> Question:
    """Weights, gradients and optimizer state of mixed precision."""
    weights = 2e9 * draw.between(0.6, 40.0, 0.2)
    return Question(
        "whole state",
        f"The weights of a network take {show(weights, 'B')} in 16 bits. With Adam in mixed precision, how much do"
        " weights, gradients and optimizer state take together?",
        show(8 * weights, "B"),
        {
            show(weights, "B"): "A model of 3 GB needs 3 GB.",
            show(2 * weights, "B"): "Training adds only a gradient for each weight.",
            show(6 * weights, "B"): "Adam's moments have 16 bits, like the weights.",
        },
        "Each weight takes 2 B, its gradient 2 B, and its fp32 copy and moments 12 B.",
        [
            Step("Weights and gradients", 2 * weights, "B"),
            Step("Copy and two moments in fp32", 6 * weights, "B"),
            Step("All", 8 * weights, "B"),
        ],
    )


def zero_3(draw: Draw) -> Question:
    """The bytes of ZeRO 3 with gradient accumulation."""
    sent, microbatches = draw.between(4.5, 40.0, 0.5) * 1e9, draw.between(3, 12, 1)
    return Question(
        "zero 3",
        f"Gradients are accumulated over {microbatches} microbatches. Plain data parallelism allreduces them once per"
        f" step, for which each GPU sends {show(sent, 'B')}. How much does it send with ZeRO 3?",
        show(1.5 * microbatches * sent, "B"),
        {
            show(sent, "B"): "ZeRO costs nothing.",
            show(1.5 * sent, "B"): "Weights are gathered once per step.",
            show(microbatches * sent, "B"): "Each microbatch allreduces once.",
        },
        "Each microbatch has two all-gathers and a reduce-scatter: 3 n per microbatch instead of 2 n once per step.",
        [
            Step("In a microbatch: 3 n for 2 n", 1.5 * sent, "B"),
            Step("In all of them", 1.5 * microbatches * sent, "B"),
        ],
    )


def recomputation_on_a_slow_network(draw: Draw) -> Question:
    """What recomputation costs where gradients are waited for."""
    forward = draw.between(110, 300, 10)
    exchange = round(forward * draw.between(2.1, 2.85, 0.05))
    step, longer = forward + exchange, 3 * forward - exchange
    return Question(
        "recomputation on a slow network",
        f"Forward takes {forward} ms, backward {2 * forward} ms. The exchange of gradients starts with backward and"
        f" takes {exchange} ms, so a step takes {step} ms. Full recomputation repeats forward within backward. By how"
        " much does a step get longer?",
        f"{100 * longer / step:.1f}%",
        {
            f"{100 / 3:.1f}%": "Recomputation costs a third.",
            f"{100 / 2:.1f}%": "Forward is half of the computation.",
            f"{100 * forward / step:.1f}%": "All that is computed twice takes twice the time.",
        },
        "It adds a third of the computation; but here the exchange is the bottleneck, and it overlaps with part of"
        " that.",
        [
            Step("Backward with recomputation", 3 * forward, "ms"),
            Step("Minus the exchange", longer, "ms"),
            Step("Over the step", 100 * longer / step, "%"),
        ],
    )


def offload_hidden(draw: Draw) -> Question:
    """The host link that hides an offload."""
    gigabytes, forward = draw.between(8, 50, 1), draw.between(0.12, 0.5, 0.02)
    return Question(
        "offload hidden",
        f"A forward pass takes {show(forward, 's')}, backward twice as long, and {gigabytes} GB of activations are"
        " offloaded. How fast must the host link be to hide the offload?",
        show(gigabytes * 1e9 / forward, "B/s"),
        {
            show(gigabytes * 1e9 / (3 * forward), "B/s"): "The whole step can hide the transfers.",
            show(
                gigabytes * 1e9 / (2 * forward), "B/s"
            ): "The transfer back, in the longer pass, decides.",
            show(2 * gigabytes * 1e9 / forward, "B/s"): "Both directions have to fit into forward.",
        },
        "Activations are offloaded during forward, which is the shorter pass.",
        [Step("Bytes over the forward pass", gigabytes * 1e9 / forward, "B/s")],
    )


def larger_batch(draw: Draw) -> Question:
    """The host link of a larger batch."""
    few, batch = draw.between(6.2, 40.0, 0.2) * 1e9, draw.between(2, 8, 1)
    return Question(
        "larger batch",
        f"Hiding the offload of a network's activations takes {show(few, 'B/s')} with {batch} samples. With"
        f" {2 * batch} samples, it takes about",
        show(few, "B/s"),
        {
            show(2 * few, "B/s"): "A larger batch needs a faster link.",
            show(few / 2, "B/s"): "A longer step hides more.",
            show(few * 2**0.5, "B/s"): "Bytes grow faster than time.",
        },
        "Bytes and seconds grow by the same factor.",
        [Step("Twice the bytes in twice the time: as before", few, "B/s")],
    )


def too_slow(draw: Draw) -> Question:
    """What a host link costs that is not fast enough."""
    share, slower = draw.between(27, 38, 1), draw.between(1.4, 3.0, 0.1)
    needed = draw.between(12, 40, 1)
    link = round(needed / slower, 1)
    way = share / 100 * needed / link
    longer = way + max(1 - share / 100, way)
    return Question(
        "too slow",
        f"Hiding the offload of a network's activations takes {needed} GB/s; the host link has {link} GB/s. Forward is"
        f" {share}% of a step in core, and everything is prefetched. How many times as long as in core does a step"
        " take?",
        f"{longer:.2f}",
        {
            f"{1 + 2 * way:.2f}": "Out of core is hopelessly slow.",
            f"{needed / link:.2f}": "The step slows down by the same factor as the link.",
            f"{1:.2f}": "Whatever is prefetched is hidden, however slow the link is.",
        },
        "Forward takes as long as its transfers; backward, which is longer, still hides most or all of its transfers.",
        [
            Step("Transfers one way, over the step in core", way),
            Step("Backward: the longer of itself and its transfers", max(1 - share / 100, way)),
            Step("Both", longer),
        ],
    )


OPEN = Open(
    "A training run needs 30% more memory than there is. Its owner lists ZeRO 1, recomputation, smaller microbatches"
    " and offloading, and asks which to choose. What do you want to know first, how does the answer decide, and what"
    " does each cost?",
    "First, which term is large at the peak: state, activations or both. ZeRO shrinks only state, at little cost;"
    " recomputation and smaller microbatches shrink activations, for a third more computation or a lower rate;"
    " offloading helps for data not needed for a while, as long as the host link hides it. Check the new peak"
    " afterwards.",
    {
        "asks for the terms at the peak before any technique": 2,
        "matches each technique to the term that it shrinks": 2,
        "names the cost of each, by a number or a condition": 2,
    },
)

QUESTIONS = [
    activations,
    whole_state,
    adapters,
    Question(
        "peak",
        "When in a step does memory peak, if activations are stored?",
        "Where forward turns to backward",
        {
            "In the layer with the most weights": "The peak is in the largest layer.",
            "At the update, when the optimizer state is read": "The optimizer state is there only at the update.",
            "At the end of backward, when all gradients exist": "Gradients outweigh activations.",
        },
        f"At that point, all activations are stored (in OPT 1.3B, in {course.what[place]} of {course.layer[place]});"
        " from then on, each layer frees its own.",
    ),
    Question(
        "split for speed",
        "A replica does not fit on one of 8 GPUs, but does if split over all 8. The batch may still grow. Is the"
        " split for speed?",
        "No, the split is what makes it fit",
        {
            "Yes, all GPUs compute at once": "Model parallelism is for speed.",
            "Yes, smaller layers run at a higher rate": "Small kernels fill a GPU better.",
            "No, nor past the critical batch": "Model parallelism is never for speed.",
        },
        "Eight replicas with eight times the samples would do the same work without an allreduce in each layer, if"
        " they fit.",
    ),
    zero_3,
    recomputation_on_a_slow_network,
    Question(
        "nine tenths activations",
        "Activations take nine tenths of the memory. Which of these does not help at all?",
        "ZeRO 1",
        {
            "Full recomputation": "Recomputation saves time, not memory.",
            "Smaller microbatches": "The batch decides, not the microbatch.",
            "Offloading activations to the host": "Out of core is hopelessly slow.",
        },
        "ZeRO 1 shards only the optimizer state. Ask which term is too large before you name a technique.",
    ),
    offload_hidden,
    larger_batch,
    too_slow,
]
