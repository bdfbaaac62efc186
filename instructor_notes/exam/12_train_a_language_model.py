"""Exam questions of module 12, training a large language model."""

from lib_dlhpc.prediction.pipelines.bubbles import PassTimes, bubbles
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import Step
from lib_dlhpc.teaching.questions import Draw, Open, Question


def fsdp_alone(draw: Draw) -> Question:
    """What FSDP over all nodes costs, next to a pipeline."""
    billions, blocks = draw.between(70, 530, 10), draw.between(60, 110, 2)
    nodes, latency = draw.between(400, 1600, 50), draw.between(5, 15, 1)
    step, rate = draw.between(1.8, 4.0, 0.2), 45
    wire = 2 * billions * 1e9 / 8 / (rate * 1e9)
    rounds = blocks * (nodes - 1) * latency * 1e-6
    return Question(
        "fsdp alone",
        f"A model of {billions} billion parameters in {blocks} blocks trains on {8 * nodes:,} H100s. With a pipeline,"
        f" and the optimizer state sharded, a step takes {step:.1f} s. With no pipeline, {nodes:,} replicas of 8 GPUs"
        f" shard everything (ZeRO 3, in bf16), and blocks are gathered in rings. A GPU's NIC carries {rate} GB/s, and"
        f" a message takes {latency} µs of latency. Computation is hidden behind the exchange. About how long does a"
        " step take?",
        f"{3 * (rounds + wire):.1f} s",
        {
            f"{step:.1f} s": "FSDP alone is enough if it fits.",
            f"{3 * wire:.1f} s": "Only bytes count, since messages are large.",
            f"{3 * (4 * rounds + wire):.1f} s": "FSDP gathers each weight matrix separately.",
        },
        f"A ring over {nodes:,} nodes pays {nodes - 1:,} latencies for each block, which is gathered twice and reduced"
        " once; NCCL's PAT would need lg p rounds.",
        [
            Step("Latencies of one pass over all blocks: blocks times (nodes - 1)", rounds, "s"),
            Step("Bytes of one pass: an eighth of the weights, over the NIC", wire, "s"),
            Step("Gathered twice, reduced once", 3 * (rounds + wire), "s"),
        ],
    )


def four_bits(draw: Draw) -> Question:
    """What products in NVFP4 gain, if some layers and the casts stay."""
    matmuls, moved, casts = (
        draw.between(60, 84, 2),
        draw.between(56, 78, 2),
        draw.between(7, 13, 1),
    )
    saved = matmuls * moved / 100 / 2

    def gain(left: float) -> str:
        return f"{100 / left:.2f}"

    return Question(
        "four bits",
        f"A step in MXFP8 spends {matmuls}% of its time in matmuls. In NVFP4, matmuls that take {moved}% of this time"
        " run twice as fast; the others keep their format, or the run would not converge. Casts, scales and"
        f" transforms add {casts}% of the old step. How many times as fast is a step?",
        gain(100 - saved + casts),
        {
            gain(50): "Half the bits, twice the speed.",
            gain(100 - matmuls / 2 + casts): "All matmuls of a step move to 4 bits.",
            gain(100 - saved): "Casts and transforms are free.",
        },
        "Only the matmuls that move to NVFP4 get faster, and preparing their operands takes time.",
        [
            Step("Saved by the matmuls that move, as a share of the old step", saved, "%"),
            Step("The new step, as a share of the old one", 100 - saved + casts, "%"),
            Step("Speedup", 100 / (100 - saved + casts)),
        ],
    )


def zero_bubble(draw: Draw) -> Question:
    """The bubble that ZB-H1 leaves."""
    stages, microbatches = draw.between(6, 16, 2), draw.between(12, 32, 1)
    forward, inputs = draw.between(10, 30, 1), draw.between(12, 36, 1)
    weights = draw.between(9, 24, 1)
    passes = PassTimes(forward, inputs + weights, weights)
    work = microbatches * (passes.forward + passes.backward)
    one, apart = (float(bubbles(stages, passes)[name].idle) for name in ("1F1B", "ZB-H1"))
    left = (stages - 1) * (forward + inputs - weights)

    def seconds(idle: float) -> str:
        return show((work + idle) / 1e3, "s")

    return Question(
        "zero bubble",
        f"In a pipeline of {stages} stages and {microbatches} microbatches, each microbatch takes a stage {forward} ms"
        f" forward, {inputs} ms for gradients of inputs and {weights} ms for those of weights. How long does a step"
        " take with ZB-H1?",
        seconds(apart),
        {
            seconds(0): "A zero-bubble pipeline has no bubble.",
            seconds(one): "The order of passes does not change the bubble.",
            seconds(
                one / 3
            ): "All three passes take equally long, so a third of the bubble is left.",
        },
        "Weight gradients fill some idle time, but the pipeline still has to fill and drain: the bubble is (p - 1)"
        " times a forward pass plus its input gradients minus its weight gradients.",
        [
            Step("Work of a stage", work, "ms"),
            Step("Bubble: (p - 1) (forward + inputs - weights)", left, "ms"),
            Step("Both", (work + left) / 1e3, "s"),
        ],
    )


def half_the_stages(draw: Draw) -> Question:
    """The share of a bubble in the whole step."""
    stages, microbatches = draw.between(6, 32, 2), draw.between(8, 40, 1)
    one, fewer = (100 * (p - 1) / (microbatches + p - 1) for p in (stages, stages // 2))
    over = 100 * (stages // 2 - 1) / microbatches
    return Question(
        "half the stages",
        f"{stages} stages and {microbatches} microbatches with 1F1B have a bubble of {one:.1f}% of a step. How large"
        f" is it with {stages // 2} stages?",
        f"{fewer:.1f}%",
        {
            f"{one / 2:.1f}%": "The share of the bubble is proportional to the stages.",
            f"{one:.1f}%": "Only the number of microbatches determines the bubble.",
            f"{over:.1f}%": "The bubble over the work is its share of the step.",
        },
        "Bubble over work is (p - 1) / m; of the whole step it is (p - 1) / (m + p - 1).",
        [
            Step("Bubble over work, (p - 1) / m", over, "%"),
            Step("Over one more than that", fewer, "%"),
        ],
    )


def far_ring(draw: Draw) -> Question:
    """A ring of attention in a node, and over four."""
    computing, sending = draw.between(40, 80, 4), draw.between(3.0, 6.0, 0.1)
    there, wire = computing / 16, 2 * sending
    return Question(
        "far ring",
        f"Ring attention runs on the 8 H100s of a node. In each round, a GPU computes for {computing} ms and sends a"
        f" block in {sending} ms, over its own link of 360 GB/s; the two overlap. Now the ring has 32 GPUs, in rank"
        " order, on four nodes, each with one NIC of 45 GB/s. How long does a round take for the same sequence?",
        show(wire / 1e3, "s"),
        {
            show(there / 1e3, "s"): "Overlap hides a ring, whatever its length.",
            show((there + wire) / 1e3, "s"): "Computing and sending take turns.",
            show(8 * wire / 1e3, "s"): "All 8 GPUs of a node send through its NIC at once.",
        },
        "A round has a sixteenth of the arithmetic, and a block a quarter of the bytes. In rank order, one GPU of"
        " each node sends to the next node and has the whole NIC; every round waits for this slowest link.",
        [
            Step("Computing, a sixteenth", there, "ms"),
            Step("Rate of the NIC over that of a link in the node", 45 / 360),
            Step("A quarter of the bytes at that rate, which takes longer", wire / 1e3, "s"),
        ],
    )


def small_replicas(draw: Draw) -> Question:
    """A batch that ends data parallelism."""
    replica, sequences = draw.any([4, 6, 8]), draw.between(240, 1200, 20)
    idle = draw.between(60, 480, 10)
    gpus = (sequences + idle) * replica
    return Question(
        "small replicas",
        f"A run has {gpus:,} GPUs and {sequences:,} sequences per step. Why not use replicas of {replica} GPUs?",
        f"{idle:,} of the replicas would have no sequence",
        {
            f"Nothing forbids them, with a batch of {sequences + idle:,}": "The batch may grow with the machine.",
            f"The weights would not fit on {replica} GPUs, even sharded": "Memory is the only limit.",
            "Each sequence would be split over two replicas": "Data parallelism splits sequences, too.",
        },
        "The batch is fixed by what trains well, which limits data parallelism to one sequence per replica.",
        [Step("Replicas", gpus // replica), Step("Minus the sequences", idle)],
    )


def fp8(draw: Draw) -> Question:
    """What linear layers in fp8 save of a step that mostly waits."""
    arithmetic, linear = draw.between(20, 60, 1), draw.between(60, 90, 5)
    idle = draw.between(1.0, 4.0, 0.5)
    saved = arithmetic * linear / 200
    return Question(
        "fp8",
        f"No exchange of a step is hidden. Arithmetic is {arithmetic}% of the step, and linear layers are {linear}% of"
        " the arithmetic. If linear layers compute in fp8, at twice the rate of bf16, the bubble also shrinks by"
        f" {idle:.1f}% of the step. By what percentage does the step time drop?",
        f"{saved + idle:.1f}%",
        {
            f"{100 / 2:.1f}%": "fp8 halves the step.",
            f"{arithmetic:.1f}%": "Arithmetic in fp8 is free.",
            f"{saved:.1f}%": "The bubble does not depend on the arithmetic.",
        },
        "Half of the arithmetic of linear layers, and part of the bubble, is saved; exchanges take as long as before.",
        [
            Step("Linear layers, as a share of the step", arithmetic * linear / 100, "%"),
            Step("Half of that", saved, "%"),
            Step("Plus the bubble", saved + idle, "%"),
        ],
    )


def recomputed(draw: Draw) -> Question:
    """MFU of a run that recomputes."""
    once, nodes = draw.between(31.0, 56.0, 0.2), draw.between(4, 64, 4)
    return Question(
        "recomputed",
        f"With tensor parallelism in each of {nodes} nodes of 8 H100s, nearly all of a step is computing, and MFU is"
        f" {once:.1f}% if nothing is recomputed. About what is MFU with full recomputation?",
        f"{once * 3 / 4:.1f}%",
        {
            f"{once:.1f}%": "MFU counts all arithmetic.",
            f"{once * 4 / 3:.1f}%": "A GPU that computes more is used better.",
            f"{once / 2:.1f}%": "Recomputation doubles the step.",
        },
        "MFU counts only the FLOP that the network needs; hardware utilization (HFU) also counts recomputation.",
        [
            Step("Forward passes' worth of time: forward twice, backward two", 4),
            Step("Three of them would be needed: times 3 / 4", once * 3 / 4, "%"),
        ],
    )


OPEN = Open(
    "You are to train a dense model of 100 billion parameters on 512 GPUs in nodes of 8, with fast links within nodes"
    " and slow ones between them. Propose a layout, defend it against one alternative, and say which two numbers you"
    " would compute before anything runs.",
    "Tensor parallelism of 8 within a node, a pipeline of a few stages between nodes until state and activations fit,"
    " and data parallelism with sharded optimizer state for the rest, as far as the batch has sequences. Compute"
    " memory per GPU at the peak and the bubble, (p - 1) / m. FSDP over all 64 nodes would pay its gathers in every"
    " block.",
    {
        "puts tensor parallelism inside the node, with the reason": 1,
        "chooses stages and replicas by memory and by the sequences of the batch": 2,
        "compares with one alternative by what it exchanges, and when": 2,
        "computes memory at the peak and the bubble, or the exposed exchange": 1,
    },
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
        "The parallelism with the least computation to hide its exchange behind needs the fastest link.",
    ),
    small_replicas,
    Question(
        "twice the experts",
        "A layer gets twice as many experts; each token is sent to as many as before. The arithmetic per token ...",
        "stays the same",
        {
            "doubles": "More experts cost more arithmetic.",
            "halves": "Each expert has half the tokens, so it computes half for each.",
            "grows with the root": "Routing costs as much as the experts.",
        },
        "Weights and memory double; a token is processed by as many experts as before, with as many messages.",
    ),
    Question(
        "experts in a node",
        "If DeepSeek-V3's experts were spread over the 8 GPUs of one node, they would exchange over NVLink. With 16"
        " stages and unsharded optimizer state, why are the experts spread over eight nodes?",
        "Their weights and optimizer state would not fit",
        {
            "NVLink would be slower": "NVLink is shared, so it is slower than NICs.",
            "The router would be unbalanced": "More ranks balance a router.",
            "There would be more arithmetic for each token": "Fewer ranks compute more for each token.",
        },
        "In one node, each GPU would hold eight times the experts' weights and state. Eight nodes are a choice: with"
        " 32 stages, or with ZeRO 1 over the replicas of an expert, one node would do.",
    ),
    fp8,
    four_bits,
    recomputed,
]
