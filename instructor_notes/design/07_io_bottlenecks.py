"""Design problem of module 07: a million small files for many GPUs."""

from lib_dlhpc.teaching.designs import Design, Draw, Part, Step, begun, show, times, varied

FILES, OWN, OPERATIONS, RATE, SHARED = 1_281_167, 64, 3, 200e3, 230e9


def design(draw: Draw) -> Design:
    """Return a version: nodes."""
    nodes = draw.of([32, 48, 64])
    toml = f"""
[model]
name = "resnet50"

[dataset]
name = "imagenet"

[machine]
name = "lassen"

[storage]
tier = "gpfs"             # one file a sample; three operations each

[strategy]
nodes = {nodes}
batch = {OWN}               # on each GPU
precision = "fp16"

[run]
epochs = 90
"""
    run, now = begun(toml)
    size = float(run.dataset.bytes) / float(run.dataset.samples)
    batch = 4 * nodes * OWN
    fed = varied(run, storage__format="packed")
    wanted = batch / float(fed.step_time)
    cached, few = varied(run, storage__cache=64e9), varied(run, storage__workers=4)
    copied = varied(run, storage__access="stage", storage__local="nvme")
    store = varied(run, storage__access="cooperative", storage__local="nvme")
    return Design(
        "A million small files",
        f"ResNet-50 trains on {nodes} nodes of four V100, {OWN} images on each GPU; fed from memory, a step"
        f" takes {float(fed.step_time) * 1e3:.1f} ms."
        f" The {FILES:,} images lie as one file each, {size / 1e3:.0f} kB on average, on a file system that all"
        f" users share: {show(SHARED, 'B/s')}, and"
        f" metadata servers that do {RATE:,.0f} stat, open or close a second; each image needs {OPERATIONS}. A"
        f" node has an NVMe disk of 1.6 TB and"
        " 256 GB of memory. Training lasts 90 epochs.",
        toml,
        float(now.step_time),
        [
            Part(
                "How many images per second do the GPUs want? How many do the metadata servers allow, how many"
                " does the bandwidth? How long would"
                " each node take to copy all files, if only metadata counts, and how long would the nodes take"
                " if each copied its part only?",
                [
                    Step("Wanted: batch / step", wanted, "images/s"),
                    Step("Allowed by metadata", RATE / OPERATIONS, "images/s"),
                    Step("Allowed by bandwidth", SHARED / size, "images/s"),
                    Step("A copy for each node", nodes * FILES * OPERATIONS / RATE, "s"),
                    Step("One copy over all nodes", FILES * OPERATIONS / RATE, "s"),
                ],
                "Bandwidth is no limit at all; metadata is one for training and for copying.",
                "All five.",
                "Rates without the copies, or bandwidth taken as the limit.",
            ),
            Part(
                "Run `dlhpc predict start.toml` and `dlhpc simulate start.toml --steps 20`. What does the wall say?",
                [
                    *times(run, now, steps=20),
                    Step("Input stall", float(now.input_stall), "s"),
                    Step("Hours", float(now.time_to_train) / 3600, "h"),
                ],
                f"The run gets {float(now.throughput):,.0f} images per second, which is your limit of the metadata"
                f" servers. The first steps of a simulation"
                " may be shorter: batches fetched ahead hide the stall for a while.",
                "Both commands, and the limit found again in the throughput.",
            ),
            Part(
                "Explain the step from your limit. Why does the stall not simply add to the step without it, or"
                " replace a term of it? What would"
                " 4 readers a GPU change (`storage.workers=4`), and what does that tell?",
                [
                    Step("Batch over the limit", batch * OPERATIONS / RATE, "s"),
                    Step("Step without stall", float(now.step_time - now.input_stall), "s"),
                    Step("Step with 4 readers", float(few.step_time), "s"),
                ],
                "Reading runs beside training: the step is the longer of both, and the stall their difference. "
                + (
                    "Four readers give the same step: the servers, not the readers, are busy."
                    if few.step_time <= now.step_time * 1.001
                    else "Four readers are too few even for the servers: latency limits them."
                ),
                "The maximum, with both numbers, and the test by readers.",
                "The limit, without why the stall is a difference.",
            ),
            Part(
                'Change one of: a cache of 64 GB in each node, `access = "stage"` or '
                '`"cooperative"` with `local = "nvme"`, '
                '`format = "packed"`. What does it'
                " give a step, and what does it cost before the first one?",
                [
                    Step("Cache: step", float(cached.step_time), "s"),
                    Step("Stage: step", float(copied.step_time), "s"),
                    Step("Stage: before the first step", float(copied.start_time), "s"),
                    Step("Cooperative: step", float(store.step_time), "s"),
                    Step("Cooperative: before the first step", float(store.start_time), "s"),
                    Step("Packed: step", float(fed.step_time), "s"),
                ],
                "A cache helps by the part of the data that it holds, since the order is random: with a new"
                " order in each epoch it does not matter which part."
                " Staging makes every node open every file: the copy is limited by metadata, too, and takes"
                " longer the more nodes there are. A"
                " cooperative store opens each file once.",
                "Step and start of one change, with the reason.",
                "The step only.",
            ),
            Part(
                "Choose, for one run, and for a group that trains every day. Count the load that you put on the"
                " shared file system.",
                [
                    Step("Packed: hours", float(fed.time_to_train) / 3600, "h"),
                    Step("Packed: read from the shared system", wanted * size, "B/s"),
                    Step("Cooperative: hours", float(store.time_to_train) / 3600, "h"),
                    Step("Stage: hours", float(copied.time_to_train) / 3600, "h"),
                    Step("Operations of 90 epochs of small files", 90 * FILES * OPERATIONS, ""),
                ],
                f"For one run the cooperative store: it asks {FILES * OPERATIONS / 1e6:.1f} million operations"
                f" once. For a group, pack once: later runs ask for"
                f" nothing, but read {wanted * size / SHARED:.0%} of the shared bandwidth while they train, so"
                f" store the packs on NVMe, too, if others need it.",
                "Two choices, each with hours and with its load on the others.",
                "One choice, or no load.",
            ),
            Part(
                "What does the model not know about this file system?",
                [Step("Share of the metadata rate that is left for others", 0, "%")],
                "The rates are those of an idle system: other users' jobs take their part of both, at times that"
                " nobody predicts, and one directory with a"
                " million entries may be slower than the servers. Measure with mdtest or `dlhpc calibrate io` at"
                " two times of the day.",
                "One omission with its direction and its measurement.",
            ),
        ],
    )
