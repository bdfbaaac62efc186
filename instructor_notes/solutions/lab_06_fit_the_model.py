"""Lab 6, fit the model: a solution, and mistakes by name."""

from itertools import product


def state(parameters, each, data, zero):
    """Return the bytes of weights, gradients and optimizer state on a GPU."""
    weight, gradient, rest = each
    return parameters * (
        weight / (data if zero >= 3 else 1)
        + gradient / (data if zero >= 2 else 1)
        + rest / (data if zero >= 1 else 1)
    )


def activations(s, b, h, a, t, recompute):
    """Return the bytes that a block keeps on a GPU (Korthikanti et al. 2022, Table 2)."""
    scores = 5 * a * s / (h * t)
    factor = {"none": 10 + 24 / t + scores, "selective": 10 + 24 / t, "full": 2}[recompute]
    return s * b * h * factor


def seconds(alone, gpus, p, m, recompute):
    """Return the seconds that a step computes, the bubble included."""
    again = 4 / 3 if recompute == "full" else 1
    return alone / gpus * again * (1 + (p - 1) / m)


def estimate(model, machine, batch, fields):
    """Return B of the fullest GPU, state and activations, and s of computing, the bubble included."""
    t, p, m = (fields[name] for name in ("tensor", "pipeline", "microbatches"))
    data = machine["gpus"] // (t * p)
    size = batch // data // m
    shape = model["sequence"], size, model["hidden"], model["heads"]
    block = activations(*shape, t, fields["recompute"])
    alone = batch * model["flop"] / machine["rate"]
    return {
        "state": state(model["parameters"] / (t * p), (2, 2, 12), data, fields["zero"]),
        "activations": block * model["layers"] / p * min(p, m),
        "computing": seconds(alone, machine["gpus"], p, m, fields["recompute"]),
    }


def estimates(model, machine, batch):
    """Yield (seconds, [strategy]) of what fits by the formulas, with a rough price of messages."""
    layers, s, h, gpus = model["layers"], model["sequence"], model["hidden"], machine["gpus"]
    every = product((1, 2, 8), (1, 2, 4), (1, 2, 3), (1, 2, 4), ("none", "selective", "full"))
    for t, p, zero, size, recompute in every:
        data = max(1, gpus // (t * p))
        own = batch // data
        m, weights = own // size, model["parameters"] / (t * p)
        named = {"tensor": t, "pipeline": p, "microbatches": m}
        if t * p * data != gpus or own * data != batch or m * size != own or layers % p:
            continue
        fields = named | {"zero": zero, "recompute": recompute}
        known = estimate(model, machine, batch, fields)
        if known["state"] + known["activations"] > machine["memory"] - machine["reserve"]:
            continue
        compute = known["computing"]
        sent = 2 * own * s * h * (t - 1) / t * layers / p  # B of a tensor group
        tensor = (12 if recompute == "full" else 8) * sent / machine["nvlink"]
        near = min(data, machine["per_node"] // t)
        link = machine["nvlink"] if near == data else min(machine["nvlink"], near * machine["nic"])
        once = 2 * weights * (data - 1) / data / link
        if zero == 3:
            exchange = max(0, 3 * m * once - compute)
        else:
            # A pipeline reduces gradients in each microbatch.
            often = m if zero == 2 and p > 1 else 1
            exchange = max(0, often * once - compute * often / m * 2 / 3) + once
        yield (
            compute + tensor + exchange,
            f"""
        [strategy]
        batch = {own}
        tensor = {t}
        pipeline = {p}
        microbatches = {m}
        zero = {zero}
        recompute = "{recompute}"
        sequence_parallel = {str(t > 1).lower()}
        """,
        )


def choice(model, machine, batch, measure, budget):
    """Return the [strategy] with the shortest step of those that the estimate likes most and that fit."""
    likely = sorted(estimates(model, machine, batch))[:budget]
    found = [(measure(text), text) for _, text in likely]
    fit = [(each.seconds, text) for each, text in found if each.bytes <= machine["memory"]]
    return min(fit)[1]


def small_peak(weights, widths, batch, microbatches):
    """Return the bytes at the peak of a step of the small network."""
    return 12 * weights + 4 * batch / microbatches * sum(widths)


# mistake -> (function, text, what stands there instead, the law that must break, its words)
MISTAKES = {
    "no ZeRO": ("state", "zero >= 1", "zero >= 9", "Weights", "No GPU stores all of"),
    "all is sharded": (
        "state",
        "zero >= 3",
        "zero >= 1",
        "Weights",
        "Your formula divides one term too many, or one too few",
    ),
    "level 2 like level 1": (
        "state",
        "zero >= 2",
        "zero >= 3",
        "Weights",
        "Your formula divides one term too many, or one too few",
    ),
    "always bf16": ("state", "= each", "= 2, 2, 12", "Weights", "are given in `each`"),
    "no scores": ("activations", "+ scores", "", "Activations", "leaves out the attention scores"),
    "all is split": (
        "activations",
        "10 + 24 / t + scores",
        "34 / t + scores",
        "Activations",
        "is replicated on each GPU",
    ),
    "nothing is split": ("activations", '24 / t, "full"', '24, "full"', "Activations", "too much"),
    "selective like full": (
        "activations",
        '"selective": 10 + 24 / t',
        '"selective": 2',
        "Activations",
        "and nothing else",
    ),
    "selective like none": (
        "activations",
        '"selective": 10 + 24 / t',
        '"selective": 10 + 24 / t + scores',
        "Activations",
        "Whatever is recomputed is not stored",
    ),
    "a byte a number": (
        "activations",
        '"full": 2}',
        '"full": 1}',
        "Activations",
        "2 bytes per number",
    ),
    "scores on each GPU": (
        "activations",
        "scores = 5 * a * s / (h * t)",
        "scores = 5 * a * s / h",
        "Activations",
        "The scores of each head",
    ),
    "the 10 are split": (
        "activations",
        '"none": 10 + 24 / t',
        '"none": 24 + 10 / t',
        "Activations",
        "shards the 24",
    ),
    "the input is split": (
        "activations",
        '"full": 2}',
        '"full": 2 / t}',
        "Activations",
        "all of the block's input",
    ),
    "one sample": ("activations", "s * b * h", "s * h", "Activations", "Twice as many samples"),
    "no bubble": ("seconds", " * (1 + (p - 1) / m)", "", "Time", "Which stages wait for the first"),
    "a bubble of one stage": (
        "seconds",
        "(p - 1) / m",
        "p / m",
        "Time",
        "A single stage has no bubble",
    ),
    "recomputed for nothing": ("seconds", "4 / 3", "1", "Time", "takes time"),
    "twice as long": ("seconds", "4 / 3", "2", "Time", "What share of both"),
    "a bubble without recomputation": (
        "seconds",
        "again * (1 + (p - 1) / m)",
        "(again + (p - 1) / m)",
        "Time",
        "Stages recompute in each backward pass, so the bubble grows, too",
    ),
    "p times as fast": (
        "seconds",
        "alone / gpus",
        "alone / gpus / p",
        "Time",
        "are already included",
    ),
    "it stops": ("seconds", "alone / gpus", "alone / 0", "Time", "stopped with ZeroDivisionError"),
}

# mistake of the estimate -> (text, what stands there instead, the law that must break, its words)
ESTIMATES = {
    "no tensor shards": (
        'model["parameters"] / (t * p)',
        'model["parameters"] / p',
        "Estimate of a strategy: state",
        "A tensor group shards the weights",
    ),
    "every GPU is a replica": (
        'data = machine["gpus"] // (t * p)\n    size',
        'data, size = machine["gpus"], 1\n    size',
        "Estimate of a strategy: state",
        "Not every GPU is a replica",
    ),
    "all weights on each stage": (
        'model["parameters"] / (t * p)',
        'model["parameters"] / t',
        "Estimate of a strategy: state",
        "A stage has the weights of its own blocks",
    ),
    "all blocks on each stage": (
        '* model["layers"] / p * min',
        '* model["layers"] * min',
        "Estimate of a strategy: activations",
        "of its own blocks",
    ),
    "one block": (
        '* model["layers"] / p * min',
        "* min",
        "Estimate of a strategy: activations",
        "of all blocks of its stage",
    ),
    "one microbatch in flight": (
        "min(p, m)",
        "1",
        "Estimate of a strategy: activations",
        "As many microbatches are in flight",
    ),
    "all microbatches in flight": (
        "min(p, m)",
        "(m if p > 1 else 1)",
        "Estimate of a strategy: activations",
        "no more microbatches in flight than stages",
    ),
    "all microbatches in flight without a pipeline": (
        "min(p, m)",
        "m",
        "Estimate of a strategy: activations",
        "One microbatch is in flight",
    ),
    "a microbatch of all replicas": (
        "size = batch // data // m",
        "size = batch // m",
        "Estimate of a strategy: activations",
        "the sequences of all replicas",
    ),
    "activations in no tensor shards": (
        "activations(*shape, t, ",
        "activations(*shape, 1, ",
        "Estimate of a strategy: activations",
        "A tensor group shards only a part of what a block stores",
    ),
    "the batch is one microbatch": (
        "size = batch // data // m",
        "size = batch // data",
        "Estimate of a strategy: activations",
        "divided by the microbatches",
    ),
    "one sequence": (
        'batch * model["flop"]',
        'model["flop"]',
        "Estimate of a strategy: computing",
        "is for one sequence",
    ),
    "no bubble": (
        'machine["gpus"], p, m, fields',
        'machine["gpus"], 1, m, fields',
        "Estimate of a strategy: computing",
        "wait while the pipeline fills",
    ),
    "recomputation is free": (
        'p, m, fields["recompute"]),',
        'p, m, "none"),',
        "Estimate of a strategy: computing",
        "adds a forward pass",
    ),
}

# mistake of the choice -> ([(text, what stands there instead), ...], the law that must break, its words)
CHOICES = {
    "nothing is given": (
        [("def choice(model, machine, batch, measure, budget):", "def choice():")],
        "The choice",
        "takes 0 positional arguments",
    ),
    "fields, not text": (
        [("return min(fit)[1]", 'return {"tensor": 1}')],
        "The choice",
        "returns a [strategy] as TOML",
    ),
    "all are measured": ([("[:budget]", "")], "The choice", "asked for prediction 13 of 12"),
    "the batch of all replicas": (
        [("batch = {own}", "batch = {batch}")],
        "The choice",
        "`batch` counts the sequences of one replica",
    ),
    "memory is no matter": (
        [
            ("(1, 2, 8), (1, 2, 4), (1, 2, 3), (1, 2, 4), ", "(1,), (1,), (1,), (2,), "),
            (
                'known["state"] + known["activations"] > machine["memory"] - machine["reserve"]',
                "recompute != 'none'",
            ),
            (' if each.bytes <= machine["memory"]', ""),
        ],
        "Target memory",
        "What makes activations smaller, and what does it cost?",
    ),
    "everything is recomputed": (
        [('("none", "selective", "full")', '("full",)')],
        "Target time",
        "The largest difference: recomputation",
    ),
    "one plan for all": (
        [
            (
                "return min(fit)[1]",
                "return \"[strategy]\\ntensor = 8\\nmicrobatches = 8\\nrecompute = 'full'\\nzero = 1\"",
            )
        ],
        "Target time",
        "The largest difference: ",
    ),
}
