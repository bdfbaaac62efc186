"""Design problem of module 12: sequences of 131,072 tokens on a 70B model."""

from lib_dlhpc.teaching.designs import Design, Draw, Part, Step, begun, show, times, varied

N, S, H, LAYERS, KV, HEAD, PEAK, MEMORY = 70.6e9, 131_072, 8192, 80, 8, 128, 989e12, 85.5e9
T, C = 8, 8


def design(draw: Draw) -> Design:
    """Return a version: nodes."""
    nodes = draw.of([64, 32, 128])
    gpus, sequences = 8 * nodes, nodes // 8
    toml = f"""
[model]
name = "llama3-70b"
sequence = {S}

[dataset]
samples = {sequences * 10_000}
bytes = 5e10

[machine]
name = "h100-pod"

[strategy]
nodes = {nodes}
batch = 1                  # sequence in a replica
tensor = {T}
context = {C}
context_exchange = "ring"
sequence_parallel = true
zero = 3
precision = "bf16"
optimizer = "adam"
"""
    run, now = begun(toml)
    tokens = sequences * S
    weights, scores = 6 * N, 6 * S * H * LAYERS
    ideal = tokens * (weights + scores) / (gpus * PEAK)
    passed = 2 * 2 * KV * HEAD * (S // C) / T
    piped = varied(run, context=1, pipeline=8, zero=1, recompute="full")
    half, quarter = varied(run, tensor=4, context=16), varied(run, tensor=2, context=32)
    redone = varied(run, recompute="full")
    best = min(
        (each for each in (now, half, quarter) if bool(each.fits)),
        key=lambda each: float(each.step_time),
    )
    split = best.experiment.strategy
    slow = varied(best.experiment, **{"machine__inter_node.bandwidth": 12.5e9})
    return Design(
        "Sequences of 131,072 tokens",
        f"Llama 3 70B ({N / 1e9:.1f} billion parameters, {LAYERS} layers, hidden size {H:,}, {KV} heads of keys and"
        f" values of {HEAD} numbers) is trained further on sequences of {S:,} tokens, on {nodes} nodes of eight H100s"
        f" ({PEAK / 1e12:.0f} TFLOP/s in bf16, {MEMORY / 1e9:.1f} GB). A step has only {sequences} sequences, one for"
        f" every {gpus // sequences} GPUs. A colleague proposes tensor {T} × context {C}, with keys and values passed"
        " around a ring, and ZeRO 3.",
        toml,
        float(now.step_time),
        [
            Part(
                "How many FLOP does a token cost in matmuls with weights (6 N), and how many in causal attention (6 s"
                " h L)? How long is a step at the peak? Which bubble, (p - 1)/m, would a pipeline of eight stages"
                " have in place of context parallelism? How many bytes of keys and values does a GPU send in each hop"
                " of the ring?",
                [
                    Step("Matmuls with weights: 6 N", weights, "FLOP"),
                    Step("Attention: 6 s h L", scores, "FLOP"),
                    Step("Step at the peak", ideal, "s"),
                    Step("Bubble over work with p = 8, m = 1", 100 * 7 / 1, "%"),
                    Step("A hop: 2 · 2 · heads · numbers · (s/c) / t", passed, "B"),
                ],
                "At this length attention costs more than the weights. One sequence per replica leaves only one"
                " microbatch, so stages wait for each other.",
                "All five.",
                "FLOP without attention, or no bubble.",
            ),
            Part(
                "Run `dlhpc predict start.toml` and `dlhpc simulate start.toml`. Which share of the peak is reached? "
                'Try `context_exchange = "heads"`, too.',
                [
                    *times(run, now),
                    Step(
                        "Share of the peak that is reached", 100 * ideal / float(now.step_time), "%"
                    ),
                    Step("Memory of a GPU", float(now.memory_total), "B"),
                ],
                f"*heads* is rejected: after tensor {T}, each GPU has {KV // T} of the {KV} heads of keys and values,"
                f" which cannot be divided by {C}. A ring does not depend on the number of heads.",
                "Both commands, the share of the peak, and why *heads* is rejected.",
            ),
            Part(
                "Which terms lie between the peak and the prediction? How much of the ring's time is exposed, and"
                " why?",
                [
                    Step("Forward and backward", float(now.forward + now.backward), "s"),
                    Step("Exposed: tensor", float(now.exposed["tensor"]), "s"),
                    Step("Exposed: ring", float(now.exposed["context"]), "s"),
                    Step("Exposed: ZeRO 3", float(now.exposed["data"]), "s"),
                    Step("Waiting for the slowest", float(now.straggler_wait), "s"),
                ],
                "Most of the difference is arithmetic below the peak: fused attention reaches a smaller share of it"
                " than large matmuls. Next come the tensor all-gathers and reduce-scatters, for which every block"
                " waits. The ring is hidden: a hop is short compared with the attention computed meanwhile.",
                "Arithmetic below its peak, tensor messages, and why the ring is hidden, with numbers.",
                "Messages only.",
            ),
            Part(
                "Change the split at 64 GPUs per sequence: less tensor, more context. What shrinks, and which limit"
                " do you reach?",
                [
                    Step("Tensor 4 × context 16: step", float(half.step_time), "s"),
                    Step("Tensor 4 × context 16: memory", float(half.memory_total), "B"),
                    Step("Tensor 2 × context 32: step", float(quarter.step_time), "s"),
                    Step("Tensor 2 × context 32: memory", float(quarter.memory_total), "B"),
                    Step(
                        "Tensor 2 × context 32: exposed ring",
                        float(quarter.exposed["context"]),
                        "s",
                    ),
                    Step("Start with full recomputation: step", float(redone.step_time), "s"),
                ],
                "Tensor messages shrink with the number of ranks that share a block. The ring has more hops, each"
                " with keys and values of fewer tokens but more heads, and is still hidden. Activations do not"
                " change, since both kinds of parallelism split the tokens; what ZeRO 3 gathers grows, because a"
                " block is split into fewer parts.",
                "One split with messages and memory, and what ZeRO gathers.",
                "The step only.",
            ),
            Part(
                "Choose a layout and compare it with tensor 8 × pipeline 8. Does your choice hold with NICs of 100"
                " Gb/s?",
                [
                    Step(
                        f"Tensor {split.tensor} × context {split.context}: step",
                        float(best.step_time),
                        "s",
                    ),
                    Step("Its memory", float(best.memory_total), "B"),
                    Step("Tensor 8 × pipeline 8, recomputed: step", float(piped.step_time), "s"),
                    Step("Yours with 100 Gb/s: step", float(slow.step_time), "s"),
                    Step(
                        "Yours with 100 Gb/s: exposed communication",
                        float(slow.exposed_communication),
                        "s",
                    ),
                ],
                f"Tensor {split.tensor} × context {split.context} is the fastest that fits, in"
                f" {show(float(best.memory_total), 'B')}. The pipeline has no microbatches to fill it. With a quarter"
                " of the bandwidth, some gathers of ZeRO 3 are no longer hidden: the step is"
                f" {float(slow.step_time / best.step_time):.2f} times as long.",
                "The fastest layout that fits, the pipeline as alternative, and the slow network predicted.",
                "It fits and is not the fastest that was tried, or the network is not predicted.",
            ),
            Part(
                "What does the model not capture about long sequences?",
                [Step("Tokens of a step", tokens, "")],
                "Documents are shorter than a sequence and packed: masks between them remove attention, and ranks get"
                " unequal work unless blocks are assigned in a zigzag; the model takes all ranks as equal. The number"
                " of tokens per step may also be above the critical batch. Measure the slowest rank's attention on"
                " real documents.",
                "One omission with its direction and its measurement.",
            ),
        ],
    )
