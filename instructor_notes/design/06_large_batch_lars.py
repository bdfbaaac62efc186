"""Design problem of module 06: how to use all nodes on one network."""

from lib_dlhpc.teaching.designs import Design, Draw, Part, Step, begun, times, varied

IMAGES, BASE, EPOCHS, MOST, LARGE, SHORT = 1_281_167, 0.1, 90, 8192, 32_768, 64
KWH = 3.6e6


def design(draw: Draw) -> Design:
    """Return a version: nodes."""
    nodes = draw.of([64, 32, 128])
    gpus = 8 * nodes
    few = MOST // 64 // 8
    toml = f"""
[model]
name = "resnet50"

[dataset]
name = "imagenet"

[machine]
name = "dlperf-v100"
nodes = {nodes}

[strategy]
nodes = {nodes}
batch = {LARGE // gpus}                # on each GPU
precision = "fp16"
optimizer = "momentum"

[run]
target = 0.745
"""
    run, now = begun(toml)
    seconds = float(now.step_time)
    thin = varied(run, batch=MOST // gpus)
    small = varied(run, nodes=few, batch=64)
    lars = varied(run, optimizer="lars")
    between = varied(run, optimizer="lars", batch=LARGE // gpus // 2)
    steps = EPOCHS * IMAGES / MOST
    return Design(
        f"{nodes} nodes for one ResNet-50",
        f"You have {nodes} nodes of eight V100s and want ResNet-50 at 74.5% on ImageNet ({IMAGES:,} images) as soon as"
        f" possible. A colleague fills the GPUs with a batch of {LARGE:,}, momentum, and linear scaling from a rate of"
        f" {BASE} for 256 images. Known runs: momentum with linear scaling and 5 epochs of warm-up met the target in"
        f" {EPOCHS} epochs up to a batch of {MOST:,}, and missed it at 65,536; LARS met it in {SHORT} epochs at"
        f" {LARGE:,}.",
        toml,
        seconds,
        [
            Part(
                f"How many steps are {EPOCHS} epochs at a batch of {MOST:,}, and {SHORT} at {LARGE:,}? Which rate does"
                f" linear scaling give for {MOST:,}, and how many steps does its warm-up take? By which factor may a"
                " step of the large batch be longer before the large batch is slower overall?",
                [
                    Step(f"Steps at {MOST:,}", steps, ""),
                    Step(f"Steps at {LARGE:,}", SHORT * IMAGES / LARGE, ""),
                    Step("Rate: 0.1 B/256", BASE * MOST / 256, ""),
                    Step("Warm-up: 5 epochs", 5 * IMAGES / MOST, "steps"),
                    Step("Factor: ratio of the steps", steps / (SHORT * IMAGES / LARGE), ""),
                ],
                "The ratio of the steps is the most that the large batch can gain; whether it does depends on the two"
                " step times.",
                "All five.",
                "Steps and rate, without the factor.",
            ),
            Part(
                "Run `dlhpc predict start.toml` and `dlhpc simulate start.toml --seeds 10`. What does the prediction"
                " say about 74.5%, and why?",
                [
                    *times(run, now),
                    Step("Parallel efficiency", float(100 * now.efficiency), "%"),
                    Step("Epochs to 74.5%", float(now.to_accuracy.epochs.epochs), ""),
                ],
                "The step is efficient, but there is no answer (nan): beyond the largest batch that met the target,"
                " the library does not extrapolate. A high efficiency says nothing about accuracy.",
                "Both commands, and why there is no answer, in your own words.",
            ),
            Part(
                f"Keep momentum and the batch of {MOST:,}: once on all nodes (`strategy.batch={MOST // gpus}`),"
                f" once on {few} nodes with 64 images per GPU. Why is the step on all nodes not"
                f" {nodes // few} times as short?",
                [
                    Step("All nodes: step", float(thin.step_time), "s"),
                    Step(
                        "All nodes: exposed communication", float(thin.exposed_communication), "s"
                    ),
                    Step(
                        "All nodes: forward and backward", float(thin.forward + thin.backward), "s"
                    ),
                    Step(f"{few} nodes: step", float(small.step_time), "s"),
                    Step(
                        f"{few} nodes: forward and backward",
                        float(small.forward + small.backward),
                        "s",
                    ),
                ],
                "The gradient does not shrink with the images per GPU, so less backward is left to hide its exchange;"
                " kernels reach a lower rate on few images; the update and the wait for the slowest GPU remain. This"
                " is strong scaling with a fixed batch.",
                "Messages and kernels, each with numbers of both runs.",
                "One of the two.",
            ),
            Part(
                "Change the optimizer to LARS, and then halve the batch. What does the library answer?",
                [
                    Step("LARS: epochs", float(lars.to_accuracy.epochs.epochs), ""),
                    Step("LARS: time to 74.5%", float(lars.to_accuracy.time.median), "s"),
                    Step(
                        f"LARS at {LARGE // 2:,}: epochs",
                        float(between.to_accuracy.epochs.epochs),
                        "",
                    ),
                ],
                f"LARS at {LARGE:,} is a published run, so there is an answer. Half of that lies below every batch"
                " published with LARS, so there is no answer, however likely it is to work: what was not measured is"
                " not assessed.",
                "Both results, and why the second has no answer.",
                "The time only.",
            ),
            Part(
                "Make two choices, one for the shortest time and one for the fewest joules. What does a minute cost?",
                [
                    Step("Momentum, all nodes: time", float(thin.to_accuracy.time.median), "s"),
                    Step(
                        "Momentum, all nodes: energy",
                        float(thin.to_accuracy.energy.median) / KWH,
                        "kWh",
                    ),
                    Step(f"Momentum, {few} nodes: time", float(small.to_accuracy.time.median), "s"),
                    Step(
                        f"Momentum, {few} nodes: energy",
                        float(small.to_accuracy.energy.median) / KWH,
                        "kWh",
                    ),
                    Step("LARS, all nodes: time", float(lars.to_accuracy.time.median), "s"),
                    Step(
                        "LARS, all nodes: energy",
                        float(lars.to_accuracy.energy.median) / KWH,
                        "kWh",
                    ),
                ],
                "LARS wins both: fewer epochs take fewer joules, and each GPU is fully used. Of the runs with"
                " momentum, the few nodes take the fewest joules and all nodes the least time: idle and waiting GPUs"
                " draw power, too.",
                "Both choices with time and energy of three runs.",
                "Time only.",
            ),
            Part(
                f"How certain are the {SHORT} epochs? What would you run first?",
                [Step("Published runs behind the answer", 1, "")],
                "They come from one published run, with its own tuned rate and augmentation; the target lies half a"
                " point below its accuracy. Another seed or input pipeline may miss it. Run the first ten epochs at"
                " the large batch with three rates, and compare the loss at the end of the warm-up with that of a run"
                " at 8,192.",
                "The single run named, the direction of the error, and a cheap test.",
            ),
        ],
    )
