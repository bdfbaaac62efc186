"""Design problem of module 08: fine-tuning 7 billion parameters on GPUs of 40 GB."""

from lib_dlhpc.teaching.designs import Design, Draw, Part, Step, begun, show, simulate_terms, varied

N, LAYERS, HIDDEN, HEADS, DEVICE = 6.74e9, 32, 4096, 32, 42.4e9


def design(draw: Draw) -> Design:
    """Return a version: nodes and tokens of a sequence."""
    nodes, sequence = draw.of([(2, 4096), (4, 4096), (2, 3072)])
    gpus = 4 * nodes
    toml = f"""
[model]
name = "llama2-7b"
sequence = {sequence}

[dataset]
samples = 100_000
bytes = 4e9

[machine]
name = "perlmutter"

[strategy]
nodes = {nodes}
batch = 1                 # sequence on each GPU
precision = "bf16"
optimizer = "adam"
"""
    run, now = begun(toml)
    scores, inputs = 2 * HEADS * sequence**2 * LAYERS, 2 * sequence * HIDDEN * LAYERS
    zero = {stage: varied(run, zero=stage) for stage in (1, 2, 3)}
    some, every = (varied(run, zero=3, recompute=each) for each in ("selective", "full"))
    fused = varied(run, zero=3, fused_attention="on")
    two = varied(run, zero=3, fused_attention="on", batch=2)
    tensor = varied(
        run, zero=1, tensor=4, sequence_parallel=True, batch=4, microbatches=4, fused_attention="on"
    )
    hosted = varied(run, offload="all", recompute="full")
    return Design(
        "7 billion parameters on 40 GB",
        f"You have {nodes} nodes of four A100s with {DEVICE / 1e9:.1f} GB each and want to train all {N / 1e9:.2f}"
        f" billion parameters of Llama 2 7B ({LAYERS} layers, {HEADS} heads, hidden size {HIDDEN:,}) on sequences of"
        f" {sequence:,} tokens, in mixed precision with Adam: 2 B for a weight, 2 B for its gradient, 4 B for the fp32"
        f" master weight, 8 B for two moments. At least 1 GB must stay free on each GPU. A step sees {gpus} sequences;"
        " the fastest setting within these rules wins.",
        toml,
        float(now.step_time),
        [
            Part(
                "How much memory do weights, gradients and optimizer state take without ZeRO, and with each stage of"
                f" ZeRO over {gpus} GPUs? How much do the attention scores take (2 B for each of heads × tokens² in"
                " each layer)? Which part of the activations remains with full recomputation (2 B for each number in"
                " the inputs of blocks)?",
                [
                    Step("State: 16 N", 16 * N, "B"),
                    Step("ZeRO 1: (4 + 12/d) N", (4 + 12 / gpus) * N, "B"),
                    Step("ZeRO 2: (2 + 14/d) N", (2 + 14 / gpus) * N, "B"),
                    Step("ZeRO 3: 16 N / d", 16 * N / gpus, "B"),
                    Step("Scores: 2 a s² L", scores, "B"),
                    Step("Inputs of blocks: 2 s h L", inputs, "B"),
                ],
                "State and scores each prevent the run from fitting; only reducing both makes it fit.",
                "All six.",
                "The state is right, but activations are missing or not multiplied by the layers.",
            ),
            Part(
                "Run `dlhpc predict` for `strategy.zero` 0 to 3, and `dlhpc simulate` for 3. Which of them fit?"
                " (`--json` prints all memory terms.)",
                [
                    Step("Without ZeRO", float(now.memory_total), "B"),
                    *(
                        Step(f"ZeRO {stage}", float(each.memory_total), "B")
                        for stage, each in zero.items()
                    ),
                    Step("Step of ZeRO 3, predicted", float(zero[3].step_time), "s"),
                    Step(
                        "Step of ZeRO 3, simulated",
                        float(simulate_terms(zero[3].experiment).step_time),
                        "s",
                    ),
                ],
                f"None fits in {show(DEVICE, 'B')}. The run is predicted all the same, and the report names what does"
                " not fit.",
                "Four totals, and what does not fit.",
            ),
            Part(
                "Subtract your state and your scores from the total with ZeRO 3. What is the rest?",
                [
                    Step("Activations, predicted", float(zero[3].memory["activations"]), "B"),
                    Step("of which not scores", float(zero[3].memory["activations"]) - scores, "B"),
                    Step(
                        "Units gathered by ZeRO 3",
                        float(zero[3].memory["communication buffer"]),
                        "B",
                    ),
                    Step(
                        "Driver and workspace", float(zero[3].memory["driver and workspace"]), "B"
                    ),
                ],
                "Besides scores, a block stores the inputs of its matmuls and of its elementwise layers: about ten"
                " tensors of s × h, and three of the wider feed-forward network. ZeRO 3 holds two gathered units, the"
                " one that computes and the next one. A rule of 16 B per weight contains none of this.",
                "Activations other than scores, and the gathered units, both with bytes.",
                "Only the driver, or only *activations* as a whole.",
            ),
            Part(
                'With ZeRO 3, change one of: `recompute = "selective"`, `"full"`, `fused_attention '
                '= "on"`. What does each save, '
                "and what does it"
                " cost in time?",
                [
                    Step("Selective: memory", float(some.memory_total), "B"),
                    Step("Selective: step", float(some.step_time), "s"),
                    Step("Full: memory", float(every.memory_total), "B"),
                    Step("Full: step", float(every.step_time), "s"),
                    Step("Fused attention: memory", float(fused.memory_total), "B"),
                    Step("Fused attention: step", float(fused.step_time), "s"),
                ],
                "Selective recomputation removes the scores and computes attention once more; full recomputation adds"
                " a forward pass, about a third of the arithmetic. Fused attention also removes the scores, and is"
                " faster: they never pass through memory, whose bandwidth limited those layers.",
                "Memory and time of one change, and the reason for its cost.",
                "Memory only.",
            ),
            Part(
                "Which setting do you choose? Compare it with two sequences per GPU, with tensor parallelism inside a"
                " node, and with the state in host memory.",
                [
                    Step(
                        "ZeRO 3, fused attention: sequences per second",
                        float(fused.throughput),
                        "1/s",
                    ),
                    Step("Two sequences per GPU: memory", float(two.memory_total), "B"),
                    Step(
                        "Tensor 4, ZeRO 1, fused: sequences per second",
                        float(tensor.throughput),
                        "1/s",
                    ),
                    Step(
                        "All offloaded, recomputed: sequences per second",
                        float(hosted.throughput),
                        "1/s",
                    ),
                ],
                f"ZeRO 3 with fused attention takes {show(float(fused.memory_total), 'B')} and has the fastest step"
                " that fits. "
                + (
                    "A second sequence does not fit."
                    if float(two.memory_total) > DEVICE - 1e9
                    else "A second sequence fits, but changes the batch."
                )
                + " Tensor parallelism pays for messages in every block; offloading is limited by the host link.",
                "The fastest setting that leaves 1 GB, with the rates of two alternatives.",
                "It fits, but a faster one was not tried.",
            ),
            Part(
                "What do the memory terms leave out? How many bytes would have to be missing to invalidate your"
                " choice?",
                [Step("Free on a GPU with your choice", DEVICE - float(fused.memory_total), "B")],
                "They leave out fragmentation in the allocator, NCCL's buffers, and tensors that a framework keeps"
                " without need. If all of that exceeds the free memory, the run fails at its first step: measure"
                " `max_memory_reserved` over two steps before the long run.",
                "One omission, compared in bytes with what is free.",
            ),
        ],
    )
