"""Lab 10, race the planner: a solution, and mistakes by name."""

FIRST = 8  # predictions in the order of the estimate; the rest go to neighbors of the best


def estimate(experiment, layout):
    """Return the objective of a layout but for a factor, and B of memory by term: closed forms, no prediction."""
    machine, device, size = experiment.machine, experiment.machine.device, experiment.model.options
    tensor, stages, count = (layout[name] for name in ("tensor", "pipeline", "microbatches"))
    replicas, zero, full = layout["data"], layout["zero"], layout["recompute"] == "full"
    fill, again = 1 + (stages - 1) / count, 4 / 3 if full else 1
    flop = experiment.model.train_flop * experiment.global_batch / experiment.devices
    blocks, logits = size["layers"] / stages, size["vocabulary"] / size["hidden"] / 12
    issued = 48 * again * blocks * count * device.dispatch  # 16 kernels of a block, backward twice
    compute = max(flop / (0.5 * max(device.peak.values())) * again, issued)

    held = experiment.model.parameters / tensor / stages
    near = min(replicas, machine.devices_per_node // tensor)  # of a group of replicas, in a node
    rate = 0.85 * machine.inter_node.bandwidth * machine.nics * near / machine.devices_per_node
    if near == replicas:
        rate = 0.85 * machine.intra_node.bandwidth
    leaves = 1 - near / replicas if near < replicas else 1 - 1 / replicas
    gather = (2 * count + 1 if zero == 3 else 2) * 2 * held * leaves / rate
    exposed = max(0.0, gather - 0.5 * compute)
    block = 2 * layout["batch"] // count * size["sequence"] * size["hidden"]
    # The last stage has the logits.
    uneven = (blocks + logits) / ((size["layers"] + logits) / stages)
    passed = 4 * again * 2 * blocks * count * block * (1 - 1 / tensor)
    step = (compute * uneven + 2 * passed / machine.intra_node.bandwidth) * fill + exposed

    scores = 2.5 * size["heads"] * size["sequence"] / size["hidden"]
    inside = block * (5 + (12 + scores) / tensor)
    kept = blocks * min(stages, count) * (block if full else inside) + full * inside
    each = ((2, 3), (2, 2), (12, 1))  # B of weights, gradients, state; the level that shards them
    state = held * sum(size / (replicas if zero >= level else 1) for size, level in each)
    memory = {"state": state, "activations": kept}
    if "power_limit" not in layout:
        return step, memory

    limit = layout["power_limit"] or device.busy_power
    longer = compute * (((limit / device.busy_power - 0.3) / 0.7) ** -0.25 - 1)
    standing = device.idle_power + machine.node_power / machine.devices_per_node
    above = (limit - device.idle_power) * (compute + longer)
    return standing * (step + longer) + above, memory


def differ(one, other):
    """Return in how many fields two layouts differ; data and batch follow from the others."""
    return sum(one[name] != other[name] for name in one if name not in ("data", "batch"))


def planner(experiment, layouts, predict, budget):
    """Return the best layout that `budget` predictions find."""
    room, rows = experiment.machine.device.memory, range(len(layouts))
    guesses = [estimate(experiment, layout) for layout in layouts]
    estimates = [(value, sum(memory.values())) for value, memory in guesses]
    seen = {}

    def kind(row):
        return layouts[row]["zero"], layouts[row]["pipeline"] > 1

    def hope(row):
        """Unlikely to fit last; then what the estimate says, times what it was off for such layouts."""
        ratios = sorted(seen[one].memory / estimates[one][1] for one in seen) or [1.0]
        fits = sorted((one for one in seen if seen[one].memory <= room), key=rank, reverse=True)
        off = {kind(one): seen[one].value / estimates[one][0] for one in fits}
        usual = min(off.values(), default=1.0)
        value = estimates[row][0] * off.get(kind(row), usual)
        return estimates[row][1] * ratios[len(ratios) // 2] > room, value

    def rank(row):
        return seen[row].value, seen[row].memory

    while len(seen) < min(budget, len(layouts)):
        todo = [row for row in rows if row not in seen]
        for best in sorted(seen, key=rank) if len(seen) >= FIRST else ():
            near = [row for row in todo if differ(layouts[row], layouts[best]) == 1]
            if near:
                todo = near
                break
        row = min(todo, key=hope)
        seen[row] = predict(layouts[row])
    return layouts[min(seen, key=rank)]


def bet():
    """Return a layout of the small network on the ranks of this machine."""
    return {"pipeline": 2, "microbatches": 4}


# mistake -> (function, text, what stands there instead, the law that must break, its words)
MISTAKES = {
    "no activations": (
        "estimate",
        "kept = blocks",
        "kept = 0 * blocks",
        "Your estimate of activations",
        "microbatches in flight",
    ),
    "all microbatches in flight": (
        "estimate",
        "min(stages, count) * (block",
        "count * (block",
        "Your estimate of activations",
        "microbatches in flight",
    ),
    "recomputation frees nothing": (
        "estimate",
        "(block if full else inside)",
        "inside",
        "Your estimate of activations",
        "what recomputation leaves",
    ),
    "ZeRO shards nothing": (
        "estimate",
        "(replicas if zero >= level else 1)",
        "1",
        "Your estimate of state",
        "ZeRO divide",
    ),
    "stages have all weights": (
        "estimate",
        "state = held *",
        "state = held * stages *",
        "Your estimate of state",
        "pipeline and ZeRO divide",
    ),
    "no optimizer": (
        "estimate",
        "(12, 1))",
        "(0, 1))",
        "Your estimate of state",
        "times the ledger's",
    ),
    "the same for all": (
        "estimate",
        "step = (compute",
        "step, compute = 1.0, 0 * (compute",
        "Your estimate of the objective",
        "Rank correlations",
    ),
    "nothing is exposed, nothing waits": (
        "estimate",
        "* fill + exposed",
        "* 1",
        "Your estimate of the objective",
        "takes much of a step",
    ),
    "one NIC for the replicas of a node": (
        "estimate",
        "near = min(replicas, machine.devices_per_node // tensor)",
        "near = 1",
        "Your estimate of the objective",
        "how many of a node's NICs",
    ),
    "one device computes all": (
        "estimate",
        "experiment.global_batch / experiment.devices",
        "experiment.global_batch",
        "Your estimate of the objective",
        "takes much of a step",
    ),
    "no terms": (
        "estimate",
        'memory = {"state": state, "activations": kept}',
        "memory = state + kept",
        "Your estimate of state",
        "with the terms 'state', 'activations'",
    ),
    "one prediction too many": (
        "planner",
        "len(seen) < min(budget, len(layouts))",
        "len(seen) < budget + 1",
        "Within the budget",
        "asked for prediction 25 of 24",
    ),
    "tensor 3": (
        "planner",
        "return layouts[min(seen, key=rank)]",
        'return layouts[0] | {"tensor": 7}',
        "It returns a legal",
        "tensor = 7; legal: 1, 2, ",
    ),
    "not legal together": (
        "planner",
        "return layouts[min(seen, key=rank)]",
        'return layouts[0] | {"microbatches": 16}',
        "It returns a legal",
        "microbatches do not divide the batch",
    ),
    "all devices alike": (
        "planner",
        "return layouts[min(seen, key=rank)]",
        "return layouts[0]",
        "It returns a legal",
        "A layout that fits was among its predictions",
    ),
    "the first that fits": (
        "planner",
        "min(seen, key=rank)",
        "next((one for one in seen if seen[one].memory <= room), row)",
        "It returns the best",
        "and had seen",
    ),
    "it believes the estimate": (
        "planner",
        "return layouts[min(seen, key=rank)]",
        "return layouts[max(rows, key=lambda r: (r not in seen, estimates[r][1] < room / 4))]",
        "It returns the best",
        "never predicted",
    ),
    "it stops": (
        "planner",
        "seen = {}",
        "seen = {}[0]",
        "It returns a legal",
        "stopped with KeyError",
    ),
}
