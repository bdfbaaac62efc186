"""Design problem of module 02: a vision transformer over a slow network, and whether a faster one pays."""

from lib_dlhpc.teaching.designs import Design, Draw, Part, Step, begun, show, times, varied

HOUR, IMAGES, EPOCHS, OWN = 3600, 1_281_167, 300, 16
WEIGHTS, NIC, REACHED, PRICE = 304e6, 3.125e9, 0.88, 1200


def design(draw: Draw) -> Design:
    """Return a version: nodes and hours."""
    nodes, hours = draw.of([(8, 20), (16, 11), (32, 5.5)])
    most = 4 * OWN * 8 * nodes
    toml = f"""
[model]
name = "vit-l16"

[dataset]
name = "imagenet"

[machine]
name = "dlperf-v100"
nodes = 64

[machine.inter_node]
name = "ethernet-25g"

[strategy]
nodes = {nodes}
batch = {OWN}              # on each GPU
precision = "fp16"
optimizer = "adam"

[run]
epochs = {EPOCHS}
"""
    run, now = begun(toml)
    work = float(now.forward + now.backward)
    ring = 2 * (nodes - 1) / nodes * 2 * WEIGHTS / (NIC * REACHED)
    four = varied(run, batch=4 * OWN, microbatches=4)
    fast = varied(run, machine__inter_node__bandwidth="100 Gb/s")
    both = varied(run, batch=4 * OWN, microbatches=4, machine__inter_node__bandwidth="100 Gb/s")
    large = varied(run, batch=4 * OWN)
    saved = float(four.device_hours - both.device_hours)
    return Design(
        "A vision transformer over 25 Gb/s",
        f"You have {nodes} nodes of eight V100 (16 GB), each node with one Ethernet port of 25 Gb/s, of which"
        f" collectives reach {REACHED:.0%}. ViT-L/16 has {WEIGHTS / 1e6:.0f} million parameters; {OWN} images on each"
        f" GPU take {work * 1e3:.1f} ms for forward and backward in fp16, of which a third is forward. You need"
        f" {EPOCHS} epochs of ImageNet ({IMAGES:,} images) in {hours} hours, and accuracy was measured for batches up"
        f" to {most:,} images. A port of 100 Gb/s costs {PRICE:,} USD per node, a GPU-hour 1 USD.",
        toml,
        float(now.step_time),
        [
            Part(
                "How many bytes of gradients does a replica have (2 B each)? How long does an allreduce take that"
                " first sums inside a node and then runs a ring over the nodes, if only the ports count? What is the"
                " shortest step that this allows, if the allreduce overlaps with backward? How many images must a GPU"
                " process per step until its work takes as long as the messages?",
                [
                    Step("Gradients: 2 N", 2 * WEIGHTS, "B"),
                    Step("Ring over the ports: 2 (k - 1)/k · n/β", ring, "s"),
                    Step("Shortest step: forward + ring", work / 3 + ring, "s"),
                    Step(
                        "Images of a GPU: 16 · ring / (forward + backward)",
                        OWN * ring / work,
                        "images",
                    ),
                ],
                "Messages take several times as long as the work: no overlap can hide them.",
                "All four numbers.",
                "The ring is right, but it is either all added to the work or all hidden.",
            ),
            Part(
                "Run `dlhpc predict start.toml` and `dlhpc simulate start.toml --steps 10`. How long does the"
                " run take?",
                [
                    *times(run, now, steps=10),
                    Step("Parallel efficiency", float(100 * now.efficiency), "%"),
                    Step("Hours", float(now.time_to_train) / HOUR, "h"),
                ],
                f"The deadline is {hours} hours: the start is about"
                f" {float(now.time_to_train) / HOUR / hours:.1f} times too slow.",
                "Both commands, and the hours beside the deadline.",
            ),
            Part(
                "Compare your ring with *all communication*, and your shortest step with the predicted one."
                " Where is the rest?",
                [
                    Step("All communication, predicted", float(now.communication.total), "s"),
                    Step("Exposed", float(now.exposed_communication), "s"),
                    Step("Update of Adam", float(now.update), "s"),
                    Step("Waiting for the slowest", float(now.straggler_wait), "s"),
                ],
                "The sums inside a node and the latency of each bucket add a few percent to the ring. The step is"
                " longer than forward + ring because the first bucket is sent only once its gradients exist, and"
                " because update and waiting come on top. The network is saturated from the first bucket on, so the"
                " order of buckets is not the problem.",
                "Both gaps, each with its terms and their seconds.",
                "One gap, or terms without seconds.",
            ),
            Part(
                "Change one of these: four microbatches (gradient accumulation) of a batch four times as large;"
                " the same batch at once;"
                " ports of 100 Gb/s (`--set machine.inter_node.bandwidth=100Gb/s`). What does each gain, and"
                " what does it cost?",
                [
                    Step("Four microbatches: hours", float(four.time_to_train) / HOUR, "h"),
                    Step("The batch at once: memory of a GPU", float(large.memory_total), "B"),
                    Step("100 Gb/s: hours", float(fast.time_to_train) / HOUR, "h"),
                    Step("100 Gb/s: efficiency", float(100 * fast.efficiency), "%"),
                ],
                "Accumulation sends the same bytes for four times the images; its cost is the batch size, now"
                f" {most:,}. At once, the batch does not fit ({show(float(large.memory_total), 'B')} of 16.9 GB), so"
                " overlap covers only the last microbatch. Ports leave the batch as it is.",
                "One change with hours, and with its cost in batch, memory or USD.",
                "Hours only.",
            ),
            Part(
                "Meet the deadline. When do the ports pay for themselves in addition to accumulation?",
                [
                    Step("Accumulation: hours", float(four.time_to_train) / HOUR, "h"),
                    Step("Accumulation and ports: hours", float(both.time_to_train) / HOUR, "h"),
                    Step("GPU-hours that the ports save a run", saved, "GPU-hours"),
                    Step("Runs until they are paid", PRICE * nodes / saved, "runs"),
                ],
                "Accumulation meets the deadline at no cost, at the largest batch whose accuracy is known. The ports"
                " pay for themselves after the number of runs above, or at once if the batch must stay small. Turning"
                " off overlap or choosing another allreduce changes a few percent.",
                "Four microbatches, the deadline met, and the number of runs from saved GPU-hours.",
                "The deadline met, but the ports judged without the price.",
            ),
            Part(
                "What does the model leave out that could reverse your choice?",
                [Step("Largest batch whose accuracy is known", most, "images")],
                "Accuracy: that the batch trains as well with your learning rate is assumed by the problem, not"
                " computed. TCP over Ethernet may reach less than the stated share when several nodes send to one"
                " (incast), which favors accumulation. Measure the bus bandwidth with nccl-tests on all nodes, and a"
                " short run at the large batch.",
                "One omission with its direction and its measurement.",
            ),
        ],
    )
