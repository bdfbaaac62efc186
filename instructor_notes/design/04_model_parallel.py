"""Design problem of module 04: 22 billion parameters on the eight GPUs of a node."""

from lib_dlhpc.teaching.designs import Design, Draw, Part, Step, begun, show, simulate_terms, varied

N, SEQUENCE, HIDDEN, P, DEVICE = 22.1e9, 2048, 6144, 8, 85.2e9


def design(draw: Draw) -> Design:
    """Return a version: microbatches of a step."""
    m = draw.of([16, 24, 32])
    toml = f"""
[model]
name = "gpt-22b"

[dataset]
samples = 1_000_000
bytes = 4e9

[machine]
name = "selene"

[strategy]
nodes = 1
batch = {m}
microbatches = {m}
pipeline = {P}
schedule = "gpipe"
precision = "bf16"
optimizer = "adam"
"""
    run, now = begun(toml)
    ordered = varied(run, schedule="1f1b")
    some = {"schedule": "1f1b", "recompute": "selective"}
    fits, woven = (
        varied(run, **some),
        varied(run, **some | {"schedule": "interleaved", "chunks": 3}),
    )
    bubble = varied(run, **some | {"schedule": "zb-h1"})
    tensor = varied(run, **some | {"pipeline": 1, "tensor": 8, "sequence_parallel": True})
    both = {"tensor": 2, "pipeline": 4, "sequence_parallel": True, "recompute": "selective"}
    mixed = varied(run, **both, schedule="interleaved", chunks=3)
    apart = varied(
        run, **both, schedule="interleaved", chunks=3, machine__intra_node__bandwidth="12 GB/s"
    )
    pipes = varied(
        run,
        **some | {"schedule": "interleaved", "chunks": 3},
        machine__intra_node__bandwidth="12 GB/s",
    )
    return Design(
        "22 billion parameters on eight GPUs",
        f"One node has eight A100s of {DEVICE / 1e9:.1f} GB, connected by NVLink. A GPT of {N / 1e9:.1f} billion"
        f" weights (hidden size {HIDDEN:,}, sequences of {SEQUENCE:,} tokens) is cut into {P} stages. A step has {m}"
        " sequences, each a microbatch; the batch may not change. With Adam, state is 16 B per weight. A colleague's"
        " file uses GPipe. You want the fastest step that fits.",
        toml,
        float(now.step_time),
        [
            Part(
                "How much state does a stage hold? How large is the bubble relative to the work, (p - 1)/m? For how"
                " many microbatches does the first stage store activations with GPipe, and with 1F1B? How many bytes"
                " does a stage send to the next for one microbatch (2 B per number)?",
                [
                    Step("State of a stage: 16 N / p", 16 * N / P, "B"),
                    Step("Bubble over work: (p - 1)/m", 100 * (P - 1) / m, "%"),
                    Step("Stored by GPipe: m", m),
                    Step("Stored by 1F1B: min(p, m)", min(P, m)),
                    Step("Sent: 2 s h", 2 * SEQUENCE * HIDDEN, "B"),
                ],
                "State takes half of a GPU's memory. Whether the rest suffices depends on the schedule, not on where"
                " the network is cut.",
                "All five.",
                "Bubble and state, without the activations.",
            ),
            Part(
                "Run `dlhpc predict` with `schedule` `gpipe` and `1f1b`, and `dlhpc simulate start.toml`. Does"
                " either fit?",
                [
                    Step("GPipe: step", float(now.step_time), "s"),
                    Step("GPipe: simulated", float(simulate_terms(run).step_time), "s"),
                    Step("GPipe: memory", float(now.memory_total), "B"),
                    Step("1F1B: step", float(ordered.step_time), "s"),
                    Step("1F1B: memory", float(ordered.memory_total), "B"),
                ],
                "Neither fits. Both schedules take the same time: 1F1B does the same work and only stores less.",
                "Times and memory of both, and the memory limit.",
            ),
            Part(
                "Compare your bubble with the predicted one, relative to forward and backward. Which stage makes it"
                " larger? Compare the activations of both schedules with your m and p.",
                [
                    Step(
                        "Bubble over forward and backward, predicted",
                        float(100 * now.pipeline_bubble / (now.forward + now.backward)),
                        "%",
                    ),
                    Step("Activations, GPipe", float(now.memory["activations"]), "B"),
                    Step("Activations, 1F1B", float(ordered.memory["activations"]), "B"),
                    Step(
                        "Their ratio",
                        float(now.memory["activations"] / ordered.memory["activations"]),
                        "",
                    ),
                    Step("m / p", m / P, ""),
                ],
                "(p - 1)/m holds for equal stages. The last stage computes the logits in addition to its layers, so"
                " every slot waits for it. The ratio of the activations is near m/p; the fullest GPU is a different"
                " stage in each schedule, with different layers.",
                "The uneven last stage, and the ratio explained by m and p.",
                "One of the two.",
            ),
            Part(
                "With selective recomputation, change the schedule from 1F1B to interleaved with three chunks, or to"
                " `zb-h1`. What shrinks, and what grows?",
                [
                    Step("1F1B, selective: step", float(fits.step_time), "s"),
                    Step("1F1B, selective: memory", float(fits.memory_total), "B"),
                    Step("Interleaved: bubble", float(woven.pipeline_bubble), "s"),
                    Step("Interleaved: step", float(woven.step_time), "s"),
                    Step("Interleaved: memory", float(woven.memory_total), "B"),
                    Step("ZB-H1: step", float(bubble.step_time), "s"),
                    Step("ZB-H1: memory", float(bubble.memory_total), "B"),
                ],
                "Chunks divide the time to fill and drain, but more of them are in flight, which costs memory, and"
                " messages triple. ZB-H1 fills the bubble with weight gradients; what they read stays in memory until"
                " then.",
                "One schedule with its bubble and its memory.",
                "The step only.",
            ),
            Part(
                "Choose among pipeline 8, tensor 8, and tensor 2 × pipeline 4. Would you choose the same if the GPUs"
                " were connected by PCIe at 12 GB/s (`--set machine.intra_node.bandwidth=12GB/s`)?",
                [
                    Step("Tensor 8: step", float(tensor.step_time), "s"),
                    Step("Tensor 8: exposed messages", float(tensor.exposed["tensor"]), "s"),
                    Step("Tensor 2 × pipeline 4, three chunks: step", float(mixed.step_time), "s"),
                    Step("Tensor 2 × pipeline 4: memory", float(mixed.memory_total), "B"),
                    Step("The same over PCIe: step", float(apart.step_time), "s"),
                    Step("Pipeline 8, three chunks, over PCIe: step", float(pipes.step_time), "s"),
                ],
                "Tensor 2 × pipeline 4 with three chunks: it has a short bubble and few messages, in"
                f" {show(float(mixed.memory_total), 'B')}. "
                + (
                    "Over PCIe the pipeline alone is faster: "
                    if pipes.step_time < apart.step_time
                    else "Over PCIe it remains the fastest, by a smaller margin: "
                )
                + "tensor parallelism exchanges activations in every block, a pipeline sends them once per stage.",
                "A layout that fits, two alternatives with their seconds, and PCIe predicted.",
                "Only NVLink, or the memory is not checked.",
            ),
            Part(
                "What does the model not capture about your stages?",
                [Step("Free on the fullest GPU", DEVICE - float(mixed.memory_total), "B")],
                "Stages are cut between layers; a real cut that balances the logits by hand may be faster. Smaller"
                " kernels, as on two tensor ranks, may reach a lower rate than the roofline says, which favors the"
                " pipeline. Measure the forward pass of one block, split and whole.",
                "One omission with its direction and its measurement.",
            ),
        ],
    )
