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
        f" values of {HEAD} numbers) is trained further on"
        f" sequences of {S:,} tokens, on {nodes} nodes of eight H100 ({PEAK / 1e12:.0f} TFLOP/s in bf16,"
        f" {MEMORY / 1e9:.1f} GB). A step has {sequences} sequences, no more: one for each"
        f" {gpus // sequences} GPUs. A colleague proposes tensor {T} × context {C}, keys and values passed round"
        f" a ring, and ZeRO 3.",
        toml,
        float(now.step_time),
        [
            Part(
                "How many FLOP does a token cost in products with weights (6 N), and how many in causal"
                " attention (6 s h L)? How long is a step at the peak? What"
                " bubble, (p - 1)/m, would a pipeline of eight stages have in place of context parallelism? How"
                " many bytes of keys and values does a"
                " GPU pass on in each hop of the ring?",
                [
                    Step("Products: 6 N", weights, "FLOP"),
                    Step("Attention: 6 s h L", scores, "FLOP"),
                    Step("Step at the peak", ideal, "s"),
                    Step("Bubble of p = 8, m = 1, over the work", 100 * 7 / 1, "%"),
                    Step("A hop: 2 · 2 · heads · numbers · (s/c) / t", passed, "B"),
                ],
                "At this length attention costs more than the weights. One sequence a replica leaves no"
                " microbatches, so stages wait for each other.",
                "All five.",
                "FLOP without attention, or no bubble.",
            ),
            Part(
                "Run `dlhpc predict start.toml` and `dlhpc simulate start.toml`. Which part of the peak is reached? "
                'Try `context_exchange = "heads"`, too.',
                [
                    *times(run, now),
                    Step(
                        "Part of the peak that is reached", 100 * ideal / float(now.step_time), "%"
                    ),
                    Step("Memory of a GPU", float(now.memory_total), "B"),
                ],
                f"*heads* is refused: after tensor {T} each GPU has {KV // T} of the {KV} heads of keys and"
                f" values, and none is left to divide by {C}. A ring does not care"
                " how many heads there are.",
                "Both commands, the part of the peak, and the reason of the refusal.",
            ),
            Part(
                "Which terms lie between the peak and the prediction? What does the ring cost, all of it and"
                " exposed, and why?",
                [
                    Step("Forward and backward", float(now.forward + now.backward), "s"),
                    Step("Exposed: tensor", float(now.exposed["tensor"]), "s"),
                    Step("Exposed: ring", float(now.exposed["context"]), "s"),
                    Step("Exposed: ZeRO 3", float(now.exposed["data"]), "s"),
                    Step("Waiting for the slowest", float(now.straggler_wait), "s"),
                ],
                "Most of it is arithmetic below the peak: fused attention reaches a smaller part of it than"
                " large products. Next come the tensor allgathers and"
                " reduce-scatters, which every block waits for. The ring hides: a hop is short beside the"
                " attention of the block that it feeds.",
                "Arithmetic below its peak, tensor messages, and why the ring hides, with numbers.",
                "Messages only.",
            ),
            Part(
                "Change the split at 64 GPUs a sequence: less tensor, more context. What shrinks, and which"
                " limit do you meet?",
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
                "Tensor messages shrink with the ranks that share a block. The ring has more hops, each with"
                " keys and values of fewer tokens but of more heads, and"
                " still hides. Activations do not change, since both cut the tokens; what ZeRO 3 gathers grows,"
                " because a block is cut less.",
                "One split with messages and memory, and what ZeRO gathers.",
                "The step only.",
            ),
            Part(
                "Choose a layout; compare it with tensor 8 × pipeline 8. Does it survive NICs of 100 Gb/s?",
                [
                    Step(
                        f"Tensor {split.tensor} × context {split.context}: step",
                        float(best.step_time),
                        "s",
                    ),
                    Step("Its memory", float(best.memory_total), "B"),
                    Step("Tensor 8 × pipeline 8, recomputed: step", float(piped.step_time), "s"),
                    Step("Yours with 100 Gb/s: step", float(slow.step_time), "s"),
                    Step("Exposed then", float(slow.exposed_communication), "s"),
                ],
                f"Tensor {split.tensor} × context {split.context} is the fastest that fits, in"
                f" {show(float(best.memory_total), 'B')}. The pipeline has no microbatches to fill it."
                f" With a quarter of the bandwidth not all gathers of ZeRO 3 hide any longer: the step is"
                f" {float(slow.step_time / best.step_time):.2f} times as long.",
                "The fastest layout that fits, the pipeline as alternative, and the slow network predicted.",
                "It fits and is not the fastest that was tried, or the network is not predicted.",
            ),
            Part(
                "What does the model not know about long sequences?",
                [Step("Tokens of a step", tokens, "")],
                "Documents are shorter than a sequence and packed: masks between them remove attention, and"
                " ranks get unequal work unless blocks are dealt in a zig-zag; the"
                " model takes all ranks as equal. The number of tokens of a step may also be above the critical"
                " batch. Measure the slowest rank's attention"
                " on real documents.",
                "One omission with its direction and its measurement.",
            ),
        ],
    )
