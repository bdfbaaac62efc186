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
        f"ResNet-50 trains on {nodes} nodes of four V100s, {OWN} images on each GPU; fed from memory, a step takes"
        f" {float(fed.step_time) * 1e3:.1f} ms. The {FILES:,} images are stored one per file, {size / 1e3:.0f} kB on"
        f" average, on a file system that all users share. It reads {show(SHARED, 'B/s')}, and its metadata servers do"
        f" {RATE:,.0f} stat, open or close operations per second; each image needs {OPERATIONS}. A node has an NVMe"
        " disk of 1.6 TB and 256 GB of memory. Training lasts 90 epochs.",
        toml,
        float(now.step_time),
        [
            Part(
                "How many images per second do the GPUs demand? How many do the metadata servers allow, and how many"
                " does the bandwidth? If only metadata counts, how long does it take all nodes to copy all files"
                " each, and how long if each copies only its part?",
                [
                    Step("Demanded: batch / step", wanted, "images/s"),
                    Step("Allowed by metadata", RATE / OPERATIONS, "images/s"),
                    Step("Allowed by bandwidth", SHARED / size, "images/s"),
                    Step("A copy for each node", nodes * FILES * OPERATIONS / RATE, "s"),
                    Step("One copy over all nodes", FILES * OPERATIONS / RATE, "s"),
                ],
                "Bandwidth is no limit at all; metadata limits both training and copying.",
                "All five.",
                "Rates without the copies, or bandwidth taken as the limit.",
            ),
            Part(
                "Run `dlhpc predict start.toml` and `dlhpc simulate start.toml --steps 20`. What limits the step?",
                [
                    *times(run, now, steps=20),
                    Step("Input stall", float(now.input_stall), "s"),
                    Step("Hours", float(now.time_to_train) / 3600, "h"),
                ],
                f"The run gets {float(now.throughput):,.0f} images per second, which is the limit that you computed"
                " for the metadata servers. The first steps of a simulation may be shorter: prefetched batches hide"
                " the stall for a while.",
                "Both commands, and the limit found again in the throughput.",
            ),
            Part(
                "Explain the step time from your limit. Why is the stall neither added to the step as a whole nor a"
                " replacement for one of its terms? What would 4 readers per GPU change (`storage.workers=4`), and"
                " what does that show?",
                [
                    Step("Batch over the limit", batch * OPERATIONS / RATE, "s"),
                    Step("Step without stall", float(now.step_time - now.input_stall), "s"),
                    Step("Step with 4 readers", float(few.step_time), "s"),
                ],
                "Reading overlaps with training: the step is the longer of the two, and the stall is their"
                " difference. "
                + (
                    "Four readers give the same step: the servers are the limit, not the readers."
                    if few.step_time <= now.step_time * 1.001
                    else "Four readers are too few to saturate the servers: latency limits them."
                ),
                "The maximum of both, with numbers, and the test with fewer readers.",
                "The limit, without why the stall is a difference.",
            ),
            Part(
                'Try one of: a cache of 64 GB in each node, `access = "stage"` or '
                '`"cooperative"` with `local = "nvme"`, '
                '`format = "packed"`. How does it'
                " change a step, and what does it cost before the first step?",
                [
                    Step("Cache: step", float(cached.step_time), "s"),
                    Step("Stage: step", float(copied.step_time), "s"),
                    Step("Stage: before the first step", float(copied.start_time), "s"),
                    Step("Cooperative: step", float(store.step_time), "s"),
                    Step("Cooperative: before the first step", float(store.start_time), "s"),
                    Step("Packed: step", float(fed.step_time), "s"),
                ],
                "A cache serves the share of the data that it holds: with a new random order in each epoch, it does"
                " not matter which part that is. Staging makes every node open every file: the copy is limited by"
                " metadata, too, and takes longer with more nodes. A cooperative store opens each file once.",
                "Step and start of one change, with the reason.",
                "The step only.",
            ),
            Part(
                "Choose a setting for one run, and one for a group that trains every day. Count the load that each"
                " puts on the shared file system.",
                [
                    Step("Packed: hours", float(fed.time_to_train) / 3600, "h"),
                    Step("Packed: read from the shared system", wanted * size, "B/s"),
                    Step("Cooperative: hours", float(store.time_to_train) / 3600, "h"),
                    Step("Stage: hours", float(copied.time_to_train) / 3600, "h"),
                    Step("Operations of 90 epochs of small files", 90 * FILES * OPERATIONS, ""),
                ],
                f"For one run, the cooperative store: it needs {FILES * OPERATIONS / 1e6:.1f} million metadata"
                " operations, once. For a group, pack the files once: later runs need hardly any operations, but take"
                f" {wanted * size / SHARED:.0%} of the shared bandwidth while they train, so copy the packed files to"
                " NVMe as well if others need the bandwidth.",
                "Two choices, each with hours and with its load on other users.",
                "One choice, or no load.",
            ),
            Part(
                "What does the model not capture about this file system?",
                [Step("Share of the metadata rate that is left for others", 0, "%")],
                "The rates are those of an idle system: other users' jobs take their share of both at unpredictable"
                " times, and one directory with a million entries may be slower than the servers' rate. Measure with"
                " mdtest or `dlhpc calibrate io` at two times of the day.",
                "One omission with its direction and its measurement.",
            ),
        ],
    )
