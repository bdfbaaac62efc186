"""Exam questions of module 12, training a large language model."""

from functools import cache
from typing import Any

from lib_dlhpc.explore.language_model import experts
from lib_dlhpc.explore.language_model.charts import causes
from lib_dlhpc.explore.language_model.experts import Setting as Mixture
from lib_dlhpc.explore.language_model.layout import mfu
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.prediction.bubbles import Passes, bubbles
from lib_dlhpc.spec.experiment import read_experiment
from lib_dlhpc.teaching.questions import Draw, Question

NETWORKS = {
    "gpt3-175b": "GPT-3 175B",
    "bloom-176b": "BLOOM 176B",
    "llama2-70b": "Llama 2 70B",
    "mt-nlg-530b": "MT-NLG 530B",
    "mistral-7b": "Mistral 7B",
    "llama2-13b": "Llama 2 13B",
    "llama2-7b": "Llama 2 7B",
}


@cache
def run(network: str, gpus: int, sequence: int = 0, nics: int = 8, **strategy: Any) -> Breakdown:
    """Return the prediction of a step on H100 in nodes of 8."""
    fixed = {"nodes": gpus // 8, "precision": "bf16", "optimizer": "adam"}
    return predict(
        read_experiment(
            {
                "model": {"name": network, **({"sequence": sequence} if sequence else {})},
                "machine": {"name": "h100-pod", "nics": nics},
                "dataset": "webtext",
                "strategy": fixed | strategy,
            }
        )
    )


def fsdp_alone(draw: Draw) -> Question:
    """What FSDP over all nodes costs, next to a pipeline."""
    network, stages = draw.of([("gpt3-175b", 12), ("mt-nlg-530b", 15), ("bloom-176b", 10)])
    replicas = draw.of([64, 128])
    gpus = 8 * stages * replicas
    split = {"tensor": 8, "sequence_parallel": True}
    piped = run(network, gpus, pipeline=stages, batch=stages, microbatches=stages, zero=1, **split)
    alone, each = (
        float(run(network, gpus, batch=1, zero=3, zero_unit=unit, **split).step_time)
        for unit in ("block", "layer")
    )
    step = float(piped.step_time)
    model, link = piped.experiment.model, piped.experiment.machine.inter_node
    blocks = sum(layer.kind == "fused_attention" for layer in model.layers)
    return Question(
        "fsdp alone",
        f"{NETWORKS[network]}, {model.parameters / 1e9:.0f} billion weights in {blocks} blocks, on {gpus:,} H100. With"
        f" {stages} stages of 8 GPUs, {stages} microbatches, and the optimizer state sharded, a step takes"
        f" {step:.1f} s. With no pipeline, {gpus // 8:,} replicas of 8 GPUs shard everything (ZeRO 3, in bf16). A GPU's"
        f" NIC carries {link.bandwidth * link.efficiency / 1e9:.0f} GB/s, and a message takes"
        f" {link.latency * 1e6:.0f} us more. Computation is hidden behind the exchange. About how long does a step"
        " take?",
        f"{alone:.1f} s",
        {
            f"{step:.1f} s": "FSDP alone is enough if it fits.",
            f"{step - causes(piped)['pipeline bubble']:.1f} s": "Only the bubble disappears.",
            f"{each:.1f} s": "FSDP gathers each matrix of weights by itself.",
        },
        f"A ring over {gpus // 8:,} nodes pays {gpus // 8 - 1:,} latencies for each block, gathered twice and reduced"
        " once.",
    )


def zero_bubble(draw: Draw) -> Question:
    """The bubble that ZB-H1 leaves."""
    stages = draw.of([4, 8, 12])
    microbatches = draw.of([12, 16])
    forward, inputs, weights = draw.of([(10, 12, 8), (20, 22, 16), (30, 36, 27), (12, 15, 11)])
    passes = Passes(forward, inputs + weights, weights)
    work = microbatches * (passes.forward + passes.backward)
    one, apart = (
        100 * idle / (work + idle)
        for idle in (bubbles(stages, passes)[name].idle for name in ("1F1B", "ZB-H1"))
    )
    return Question(
        "zero bubble",
        f"{stages} stages, {microbatches} microbatches, each {forward} ms forward, {inputs} ms for gradients of inputs"
        f" and {weights} ms for those of weights: with 1F1B {one:.1f} % of a step is bubble. And with ZB-H1?",
        f"{apart:.1f} %",
        {
            f"{0:.1f} %": "A zero-bubble pipeline has no bubble.",
            f"{one:.1f} %": "The order of passes does not change the bubble.",
            f"{apart / 3:.1f} %": "Weight gradients fill all but the first pass.",
        },
        "Weight gradients fill some idle time; the pipeline still has to fill and drain: (p - 1) times a forward pass"
        " and its input gradients, less the weight gradients.",
    )


def half_the_stages(draw: Draw) -> Question:
    """The share of a bubble in the whole step."""
    stages = draw.of([6, 10, 12, 20])
    microbatches = draw.of([8, 12, 24])
    one, fewer = (100 * (p - 1) / (microbatches + p - 1) for p in (stages, stages // 2))
    return Question(
        "half the stages",
        f"{stages} stages and {microbatches} microbatches with 1F1B have a bubble of {one:.1f} % of a step. And"
        f" {stages // 2} stages?",
        f"{fewer:.1f} %",
        {
            f"{one / 2:.1f} %": "The share of the bubble is proportional to the stages.",
            f"{one:.1f} %": "Only the microbatches decide the bubble.",
            f"{min(2 * one, 99):.1f} %": "Fewer stages wait longer for each other.",
        },
        "Bubble over work is (p - 1) / m; of the whole step it is (p - 1) / (m + p - 1).",
    )


def far_ring(draw: Draw) -> Question:
    """A ring of attention in a node, and over four."""
    network, sequence = draw.of(
        [("llama2-7b", 32768), ("llama2-13b", 49152), ("mistral-7b", 24576)]
    )

    def exposed(ranks: int, nics: int) -> float:
        held = {"context": ranks, "context_exchange": "ring", "zero": 1, "batch": ranks // 8}
        step = run(network, 64, sequence, nics, microbatches=ranks // 8, **held)
        return 100 * float(step.exposed["context"] / step.step_time)

    near, far = exposed(8, 8), exposed(32, 1)
    return Question(
        "far ring",
        f"{NETWORKS[network]}, sequences of {sequence:,} tokens in a ring of 8 H100 in a node, 360 GB/s each:"
        f" {near:.2f} % of a step is exposed. In a ring of 32 GPUs over four nodes, where the 8 GPUs of a node share"
        " one NIC of 45 GB/s?",
        f"{far:.1f} %",
        {
            f"{near:.2f} %": "Overlap hides a ring, whatever its length.",
            f"{4 * near:.2f} %": "Four times the ranks expose four times as much.",
            f"{100:.0f} %": "Nothing can be hidden on one NIC.",
        },
        "A block has a sixteenth of the arithmetic and a quarter of the bytes, on a slower link.",
    )


def small_replicas(draw: Draw) -> Question:
    """A batch that ends data parallelism."""
    gpus, sequences, replica = draw.of(
        [(8192, 720, 8), (6144, 600, 8), (4096, 760, 4), (12288, 1500, 6), (2048, 360, 4)]
    )
    return Question(
        "small replicas",
        f"{gpus:,} GPUs, {sequences:,} sequences in a step. Why not replicas of {replica} GPUs?",
        f"{gpus // replica - sequences:,} of the replicas would have no sequence",
        {
            "The batch would have to grow, which costs nothing": "The batch may grow with the machine.",
            "The weights would not fit, however they are sharded": "Memory is the only limit.",
            "Each sequence would be split over replicas": "Data parallelism splits sequences too.",
        },
        "The batch is fixed by what learns well, and ends data parallelism at one sequence per replica.",
    )


def fp8(draw: Draw) -> Question:
    """What linear layers in fp8 save of a step that mostly waits."""
    layout = Mixture(experts=draw.of([16, 32]), busiest=draw.of([1.2, 1.5, 2.0]))
    own = experts.predicted(layout)
    whole = float(own.step_time)
    fast = experts.predicted(layout._replace(products="fp8"))
    saved = 100 * (1 - float(fast.step_time) / whole)
    arithmetic, left = (
        100 * sum(experts.computed(causes(each)).values()) / whole for each in (own, fast)
    )
    linear = 200 * (arithmetic - left) / arithmetic
    idle = 100 * float(own.pipeline_bubble - fast.pipeline_bubble) / whole
    return Question(
        "fp8",
        f"DeepSeek-V3 on 2,048 H800, its experts over {layout.experts} ranks, the busiest with {layout.busiest} times"
        f" the mean. No exchange is hidden. Arithmetic is {arithmetic:.1f} % of a step, linear layers are {linear:.0f}"
        " % of the arithmetic. If they compute in fp8, at twice the rate of bf16, the bubble falls by"
        f" {idle:.1f} % of a step, too. By what percentage does the step time drop?",
        f"{saved:.1f} %",
        {
            f"{100 / 2:.1f} %": "fp8 halves the step.",
            f"{arithmetic:.1f} %": "Arithmetic in fp8 is free.",
            f"{0:.1f} %": "A step that waits for messages has no use for arithmetic.",
        },
        "Half of the arithmetic of linear layers, and of its bubble, is saved, less casts; exchanges stay.",
    )


def recomputed(draw: Draw) -> Question:
    """MFU of a run that recomputes."""
    network, nodes = draw.of([("llama2-70b", 16), ("gpt3-175b", 64), ("llama2-13b", 4)])
    batch = draw.of([16, 32])
    split = {
        "tensor": 8,
        "sequence_parallel": True,
        "batch": batch,
        "microbatches": batch,
        "zero": 1,
    }
    once, again = (
        100 * mfu(run(network, 8 * nodes, recompute=how, **split)) for how in ("none", "full")
    )
    return Question(
        "recomputed",
        f"{NETWORKS[network]}, tensor parallelism in nodes of 8 H100, {nodes} replicas, {batch} microbatches: an MFU of"
        f" {once:.1f} % if nothing is recomputed. About what is the MFU if all of a block is?",
        f"{again:.1f} %",
        {
            f"{once:.1f} %": "MFU counts all arithmetic.",
            f"{once * 4 / 3:.1f} %": "A GPU that computes more is used better.",
            f"{once / 2:.1f} %": "Recomputation doubles the step.",
        },
        "MFU counts what the network needs; recomputation is what hardware utilization (HFU) counts.",
    )


QUESTIONS = [
    fsdp_alone,
    zero_bubble,
    half_the_stages,
    far_ring,
    Question(
        "the fastest link",
        "Which kind of parallelism needs NVLink the most, and why?",
        "Tensor: each layer waits for its collectives",
        {
            "Data: gradients of all weights travel": "The gradients of all weights are the most bytes a GPU sends.",
            "Pipeline: all stages wait for a message": "A late message stops the whole pipeline.",
            "Context: keys and values of all tokens travel": "A ring waits for each of its messages.",
        },
        "What has little to hide behind sits closest.",
    ),
    small_replicas,
    Question(
        "twice the experts",
        "A layer gets twice as many experts; a token is sent to as many as before. The arithmetic of a token ...",
        "stays the same",
        {
            "doubles": "More experts cost more arithmetic.",
            "halves": "Each expert has half the tokens, so it computes half for each.",
            "grows with the root": "Routing costs as much as the experts.",
        },
        "Weights and memory double; a token meets as many experts as before, in as many messages.",
    ),
    Question(
        "experts in a node",
        "DeepSeek-V3's experts over the 8 GPUs of a node would exchange over NVLink. If optimizer state is not"
        " sharded, why must they be spread over eight nodes?",
        "Their weights and optimizer state would not fit",
        {
            "NVLink would be slower": "NVLink is shared, so it is slower than NICs.",
            "The router would be unbalanced": "More ranks balance a router.",
            "There would be more arithmetic": "Fewer ranks compute more for each token.",
        },
        "Eight times the experts' weights and state on each GPU; ZeRO 1 over 16 replicas would change that.",
    ),
    fp8,
    recomputed,
]
