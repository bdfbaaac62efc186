"""Exam questions of module 08, memory and out of core."""

from functools import cache
from typing import Any

from lib_dlhpc.explore.memory_wall import ledger, outside
from lib_dlhpc.explore.memory_wall.ledger import Setting
from lib_dlhpc.explore.memory_wall.outside import Setting as Away
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.spec.experiment import read_experiment
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.questions import Draw, Question

NETWORKS = {
    "opt-125m": "OPT 125M",
    "opt-1.3b": "OPT 1.3B",
    "gpt-1536x16": "a GPT of 16 blocks",
    "mistral-7b": "Mistral 7B",
    "gemma-2b": "Gemma 2B",
    "llama2-13b": "Llama 2 13B",
    "qwen2.5-0.5b": "Qwen 2.5 0.5B",
}
SIZES = {"opt-125m": (12, 768, 12), "opt-1.3b": (24, 2048, 32), "gpt-1536x16": (16, 1536, 16)}
LINKS = {"ethernet-10g": "10 Gb/s", "ethernet-50g": "50 Gb/s", "ethernet-100g": "100 Gb/s"}
course = ledger.in_time(Setting("opt-1.3b"))
place = int(course.bytes.argmax())


@cache
def on_a_slow_network(network: str, link: str, **strategy: Any) -> Breakdown:
    """Return a step of data parallelism on two nodes of 8 A100, one slow link each."""
    fixed = {"nodes": 2, "precision": "bf16", "optimizer": "adam"}
    machine = {"name": "selene", "inter_node": link, "nics": 1, "jitter": 0.0}
    return predict(
        read_experiment(
            {
                "model": network,
                "machine": machine,
                "dataset": "webtext",
                "storage": {"tier": ""},
                "strategy": fixed | strategy,
            }
        )
    )


def activations(draw: Draw) -> Question:
    """Activations, from what a block stores of a sample."""
    network = draw.of(list(SIZES))
    layers, hidden, heads = SIZES[network]
    setting = Setting(network, draw.of([2, 3, 6, 12]))
    weights, state, stored = ledger.shares(setting)
    tokens, words = ledger.experiment(setting).model.layers[-1].output_shape
    return Question(
        "activations",
        f"You train {NETWORKS[network]}: {show(weights, 'B')} of weights in 16 bits, {layers} blocks of width"
        f" {hidden:,} with {heads} heads. The batch is {setting.batch} samples of {tokens:,} tokens; attention is not"
        f" fused, and the loss is taken of fp32 logits of {words:,} words. About how much do the activations take at"
        " the peak?",
        show(stored, "B"),
        {
            show(weights, "B"): "Activations are small.",
            show(state / 2, "B"): "Activations are as large as the optimizer state.",
            show(stored / layers, "B"): "Only the activations of one layer are stored.",
        },
        "Backward needs the outputs of every layer, for every sample: s h (34 + 5 a s / h) bytes of a"
        " block, and 4 bytes of a logit.",
    )


def whole_state(draw: Draw) -> Question:
    """Weights, gradients and optimizer state of mixed precision."""
    network = draw.of(["qwen2.5-0.5b", "opt-1.3b", "gemma-2b", "mistral-7b", "llama2-13b"])
    weights, state, _ = ledger.shares(Setting(network, 1))
    return Question(
        "whole state",
        f"{NETWORKS[network]}: the weights take {show(weights, 'B')} in 16 bits. With Adam in mixed precision, how much"
        " do weights, gradients and optimizer state take?",
        show(state, "B"),
        {
            show(weights, "B"): "A model of 3 GB needs 3 GB.",
            show(2 * weights, "B"): "Training adds a gradient for each weight, no more.",
            show(4 * weights, "B"): "Adam's moments have 16 bits, like the weights.",
        },
        "2 B of weight and 2 B of gradient, 12 B of fp32 copy and moments.",
    )


def zero_3(draw: Draw) -> Question:
    """The bytes of ZeRO 3 with gradient accumulation."""
    network = draw.of(["llama2-13b", "mistral-7b"])
    microbatches = draw.of([3, 6, 10])

    def sent(zero: int) -> float:
        accumulated = {"batch": microbatches, "microbatches": microbatches}
        step = on_a_slow_network(network, "ethernet-10g", zero=zero, **accumulated)
        return float(step.communication.bandwidth)

    times = sent(3) / sent(0)
    return Question(
        "zero 3",
        f"{NETWORKS[network]}: gradients are accumulated over {microbatches} microbatches. Plain data parallelism"
        " allreduces them once per step. About how many times the bytes does ZeRO 3 send?",
        f"{times:.2f}",
        {
            f"{times / times:.2f}": "ZeRO costs nothing.",
            f"{3 / 2:.2f}": "Weights are gathered once per step.",
            f"{microbatches:.2f}": "Each microbatch allreduces once.",
        },
        "In each microbatch two all-gathers and a reduce-scatter, 3 n for 2 n once per step.",
    )


def recomputation_on_a_slow_network(draw: Draw) -> Question:
    """What recomputation costs where gradients are waited for."""
    network = draw.of(["opt-1.3b", "gemma-2b", "qwen2.5-0.5b"])
    link = draw.of(["ethernet-10g", "ethernet-50g"])
    once, again = (
        float(on_a_slow_network(network, link, batch=1, recompute=how).step_time)
        for how in ("none", "full")
    )
    plain = on_a_slow_network(network, link, batch=1)
    computed = float(plain.forward + plain.backward)
    return Question(
        "recomputation on a slow network",
        f"{NETWORKS[network]} on 16 GPUs, two nodes, one {LINKS[link]} link each: a step takes {show(once, 's')}, of"
        f" which computing takes {show(computed, 's')}. Full recomputation repeats the forward pass. How much longer is"
        " a step?",
        f"{100 * (again / once - 1):.2f} %",
        {
            f"{100 / 3:.1f} %": "Recomputation costs a third.",
            f"{100 / 2:.1f} %": "Forward is half of the computation.",
            f"{100 / 6:.1f} %": "Half of the recomputation is overlapped.",
        },
        "A third of the compute; but communication is the bottleneck here, and it overlaps.",
    )


def offload_hidden(draw: Draw) -> Question:
    """The host link that hides an offload."""
    gigabytes, forward = draw.of([12, 18, 28, 45]), draw.of([0.15, 0.2, 0.4])
    return Question(
        "offload hidden",
        f"A forward pass takes {show(forward, 's')}, backward twice as long, and {gigabytes} GB of activations are"
        " offloaded. How fast must the host link be to hide it?",
        show(gigabytes * 1e9 / forward, "B/s"),
        {
            show(gigabytes * 1e9 / (3 * forward), "B/s"): "The whole step is there to hide it.",
            show(
                gigabytes * 1e9 / (2 * forward), "B/s"
            ): "The way back, in the longer pass, decides.",
            show(2 * gigabytes * 1e9 / forward, "B/s"): "Both directions share forward.",
        },
        "They leave during forward, which is the shorter pass.",
    )


def larger_batch(draw: Draw) -> Question:
    """The host link of a larger batch."""
    network = draw.of(["opt-125m", "opt-1.3b", "gpt-1536x16", "gemma-2b"])
    batch = draw.of([3, 4, 6])
    few, many = (outside.needed(Away(network, size)).required for size in (batch, 2 * batch))
    return Question(
        "larger batch",
        f"Hiding the offload of activations of {NETWORKS[network]} takes {show(few, 'B/s')} with {batch} samples. And"
        f" with {2 * batch}? About",
        show(many, "B/s"),
        {
            show(2 * few, "B/s"): "A larger batch needs a faster link.",
            show(few / 2, "B/s"): "A longer step hides more.",
            show(few * 2**0.5, "B/s"): "Bytes grow faster than the time.",
        },
        "Bytes and seconds grow alike.",
    )


def too_slow(draw: Draw) -> Question:
    """What a host link costs that is not fast enough."""
    network, slower = draw.of(["opt-125m", "opt-1.3b", "gpt-1536x16"]), draw.of([1.5, 2, 2.5, 3])
    needed = outside.needed(Away(network)).required
    setting = Away(network, link=round(needed / slower))
    inside = outside.seconds(setting, "in core")
    ahead, paged = (outside.seconds(setting, way) for way in ("prefetched", "page by page"))
    return Question(
        "too slow",
        f"Hiding the offload of activations of {NETWORKS[network]} takes {show(needed, 'B/s')}; the host link has"
        f" {show(setting.link, 'B/s')}. Forward is {100 * outside.forward_share(setting):.1f} % of a step in core, and"
        " all is prefetched. How many times as long as in core does a step take?",
        f"{ahead / inside:.2f}",
        {
            f"{paged / inside:.0f}": "Out of core is hopelessly slow.",
            f"{slower:.2f}": "The step is as much slower as the link.",
            f"{1:.2f}": "What is prefetched is hidden, however slow the link is.",
        },
        "Forward takes as long as its transfers; backward, which is longer, still hides most or all of its own.",
    )


QUESTIONS = [
    activations,
    whole_state,
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
    zero_3,
    recomputation_on_a_slow_network,
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
    offload_hidden,
    larger_batch,
    too_slow,
]
