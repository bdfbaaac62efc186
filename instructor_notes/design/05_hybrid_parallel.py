"""Design problem of module 05: a layout for a 13B model on nodes with half of their NICs."""

from lib_dlhpc.teaching.designs import (
    Design,
    Draw,
    Part,
    Step,
    begun,
    predict,
    show,
    simulate_terms,
)

DAY, MWH = 86400, 3.6e9
SEQUENCE, MOST = 4096, 1024  # tokens; sequences a step
T, P, M = 4, 4, 16


def design(draw: Draw) -> Design:
    """Return a version: nodes, billions of tokens, days, MWh."""
    nodes, tokens, days, budget = draw.of(
        [(64, 300, 3.6, 33), (32, 200, 4.9, 22), (128, 800, 4.9, 88)]
    )
    gpus = 8 * nodes
    toml = f"""
[model]
name = "llama2-13b"

[dataset]
samples = {round(tokens * 1e9 / SEQUENCE)}
bytes = {2e9 * tokens:.0f}

[machine]
name = "selene"
nics = 4

[strategy]
nodes = {nodes}
batch = {M}
microbatches = {M}
tensor = {T}
pipeline = {P}
sequence_parallel = true
zero = 1
recompute = "selective"
precision = "bf16"
optimizer = "adam"
"""
    (run, now), own = begun(toml), min(2, MOST // gpus)
    seconds = float(now.step_time)
    one = {"strategy.tensor": 1, "strategy.pipeline": 1, "strategy.sequence_parallel": False}
    sharded = run.set(one | {"strategy.zero": 3, "strategy.batch": own, "strategy.microbatches": 1})
    chosen = predict(sharded)
    longer = predict(run.set({"strategy.batch": 2 * M, "strategy.microbatches": 2 * M}))
    woven = predict(run.set({"strategy.schedule": "interleaved", "strategy.chunks": 5}))
    stored = predict(sharded.set({"strategy.recompute": "none"}))
    wired = predict(sharded.set({"machine.nics": 8}))
    drawn = float(simulate_terms(run).step_time)
    work = 6 * 13.0e9 * tokens * 1e9
    half = work / (gpus * 312e12 / 2)
    state = 13.0e9 / (T * P) * (4 + 12 / (gpus // (T * P)))
    setting = (
        f"You have {nodes} nodes of eight A100s (80 GB, 312 TFLOP/s in bf16), connected by NVLink inside a node and by"
        f" four HDR NICs of 200 Gb/s per node. A model of 13.0 billion parameters is to see {tokens} billion tokens,"
        f" in sequences of {SEQUENCE:,} tokens and in batches of at most {MOST:,} sequences; larger batches would need"
        f" more tokens. You have {days} days and {budget} MWh, cooling included. A colleague proposes tensor {T},"
        f" pipeline {P} and {M} microbatches."
    )
    return Design(
        "A layout for 13 billion parameters",
        setting,
        toml,
        seconds,
        [
            Part(
                "How many FLOP does the run take (6 per weight and token), and how many days at half of the peak? How"
                " much memory do weights, gradients and Adam's state take on one GPU in your colleague's layout (bf16"
                " weights and gradients of 2 B each, 12 B of fp32 master weight and two moments, the latter sharded"
                " over the replicas by ZeRO 1)? How large is the bubble of 1F1B relative to the work of a stage, (p -"
                " 1)/m?",
                [
                    Step("Work: 6 N T", work, "FLOP"),
                    Step("Days at half of the peak", half / DAY, "days"),
                    Step(f"State: N / (t p) · (4 + 12 / d), d = {gpus // (T * P)}", state, "B"),
                    Step("Bubble over work: (p - 1) / m", 100 * (P - 1) / M, "%"),
                ],
                "The state is small: memory is no reason to split the network into sixteen parts.",
                "All four, and the remark that half of the peak is an assumption, not a model.",
                "Three of them, or 16 B per weight on every GPU as if nothing were sharded.",
            ),
            Part(
                "Run `dlhpc predict start.toml` and `dlhpc simulate start.toml`. Which limits does the layout miss?",
                [
                    Step("Step, predicted", seconds, "s"),
                    Step("Step, simulated with the jitter of one step", drawn, "s"),
                    Step("Time to train", float(now.time_to_train) / DAY, "days"),
                    Step("Energy", float(now.energy_to_train) / MWH, "MWh"),
                    Step("Memory of a GPU", float(now.memory_total), "B"),
                ],
                f"It misses {_missed(now, days, budget)}, with {now.memory_total / 85.2e9:.0%} of the memory in use."
                " The simulation counts the wait for slow ranks under messages and the bubble; the step agrees within"
                " a few percent.",
                "Both commands, and both limits named.",
            ),
            Part(
                "Which terms explain the difference between your days and the predicted ones, in the order of their"
                " size? Why is the predicted bubble not your (p - 1)/m of forward and backward? `--explain` helps.",
                [
                    Step("Pipeline bubble", float(now.pipeline_bubble), "s"),
                    Step(
                        "Bubble over forward and backward, predicted",
                        float(100 * now.pipeline_bubble / (now.forward + now.backward)),
                        "%",
                    ),
                    Step(
                        "(p - 1) / m of forward, backward and exposed tensor messages",
                        float((now.forward + now.backward + now.exposed["tensor"]) * (P - 1) / M),
                        "s",
                    ),
                    Step("Exposed communication", float(now.exposed_communication), "s"),
                    Step("of which tensor parallel", float(now.exposed["tensor"]), "s"),
                    Step("Waiting for the slowest", float(now.straggler_wait), "s"),
                ],
                "The bubble is the largest loss. It exceeds (p - 1)/m because every slot of the pipeline is as long"
                " as the slowest stage, here the one that computes the logits, including the tensor allreduces of"
                " that stage. Tensor messages come next: each block waits for them, and they cannot be hidden."
                " Gradient exchange (data) is mostly hidden behind backward.",
                "Bubble, then tensor messages, each with its seconds, and why stages take longer than their work.",
                "Only the bubble, or no reason why it is larger.",
            ),
            Part(
                "Change one field of the layout at a time (the batch and its microbatches count as one). What does"
                " each change gain, and what does it cost?",
                [
                    Step(
                        f"{2 * M} microbatches of a batch twice as large: days",
                        float(longer.time_to_train) / DAY,
                        "days",
                    ),
                    Step(
                        "Five chunks, interleaved: days", float(woven.time_to_train) / DAY, "days"
                    ),
                    Step(
                        "Five chunks: exposed pipeline messages",
                        float(woven.exposed["pipeline"]),
                        "s",
                    ),
                    Step(
                        "No pipeline, no tensor parallelism, ZeRO 3: days",
                        float(chosen.time_to_train) / DAY,
                        "days",
                    ),
                    Step("ZeRO 3: memory", float(chosen.memory_total), "B"),
                ],
                "More microbatches halve the bubble's share but make the batch"
                f" {float(longer.experiment.global_batch):,.0f} sequences, where {MOST:,} are allowed. Interleaving"
                " divides the bubble by the number of chunks and sends more messages. Sharding the weights over all"
                " GPUs removes both the bubble and tensor messages; its gathers are hidden behind the work of a whole"
                " block, and the memory that was unused holds the activations.",
                "One of these with its gain and its cost, and the limit on the batch respected.",
                "A gain that comes from a batch above the limit.",
            ),
            Part(
                "Choose a layout that meets all limits, and name the best alternative. Your supplier offers the four"
                " NICs that each node lacks: do you buy them?",
                [
                    Step("ZeRO 3: step", float(chosen.step_time), "s"),
                    Step("Days", float(chosen.time_to_train) / DAY, "days"),
                    Step("Energy", float(chosen.energy_to_train) / MWH, "MWh"),
                    Step("Days with eight NICs", float(wired.time_to_train) / DAY, "days"),
                    Step("Memory without recomputation", float(stored.memory_total), "B"),
                ],
                f"`zero = 3`, `tensor = pipeline = microbatches = 1`, `batch = {own}`: {_missed(chosen, days, budget)}"
                f" is missed. The NICs would save {show(float(chosen.time_to_train - wired.time_to_train), 's')} of"
                " the run: do not buy them. What is left is arithmetic, the wait for the slowest GPU, and"
                " recomputation, which only more memory would remove.",
                "A layout within the limits on days, energy, batch and memory, an alternative with its days, and the"
                " NICs judged by a prediction.",
                "It meets the limits, but NICs are bought or refused without a number.",
            ),
            Part(
                "What does the model leave out that could make your layout the wrong one? Which measurement"
                " would you make first?",
                [Step("Bytes that a GPU gathers or scatters per step: 3 · 2 N", 6 * 13.0e9, "B")],
                "Gathers are hidden only if NCCL keeps its rate next to compute kernels, which lose multiprocessors"
                " to it, and if no other job congests the fabric. Fragmentation in the allocator may take the memory"
                " that is left. Measure one step on 2 nodes and on all nodes with the profiler, and compare the"
                " exposed gathers.",
                "One of these with its direction and its measurement.",
            ),
        ],
    )


def _missed(found, days: float, budget: float) -> str:  # type: ignore[no-untyped-def]
    """Return which limits a prediction misses."""
    late = float(found.time_to_train) > days * DAY
    much = float(found.energy_to_train) > budget * MWH
    return {
        (0, 0): "no limit",
        (1, 0): "the days",
        (0, 1): "the energy",
        (1, 1): "the days and the energy",
    }[late, much]
