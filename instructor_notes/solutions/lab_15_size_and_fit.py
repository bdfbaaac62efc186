"""Lab 15, size and fit a model: a solution, and mistakes by name."""


def adapters(shapes, blocks, rank):
    """Return the weights of A and B beside every adapted matmul."""
    return blocks * sum(rank * (inputs + outputs) for inputs, outputs in shapes)


def bits(block):
    """Return the bits of a weight in NF4 with double quantization."""
    return 4 + 8 / block + 32 / (256 * block)


def tuning(matmuls, others, trained, bits):
    """Return the bytes of frozen weights, and of trained ones with gradients and state."""
    return matmuls * bits / 8 + 2 * others + (2 + 2 + 12) * trained


def state(weights, devices, zero):
    """Return the bytes of weights, gradients and optimizer state on a GPU."""
    kept = 2 / (devices if zero == 3 else 1)
    gradients = 2 / (devices if zero >= 2 else 1)
    optimizer = 12 / (devices if zero >= 1 else 1)
    return weights * (kept + gradients + optimizer)


def tokens(rate, days, served):
    """Return the tokens to train on: a served token costs 2 of the 6 FLOP per weight of a trained one."""
    return max(rate * days * 86400 - served / 3, 0)


def choose(sizes, room, days, served, loss):
    """Return the place of the size with the lowest loss that fits."""
    best, least = 0, float("inf")
    for place, size in enumerate(sizes):
        seen = tokens(size["rate"], days, served)
        if size["bytes"] > room or not seen:
            continue
        found = loss(size["weights"], seen)
        if found < least:
            best, least = place, found
    return best


# By name: the function, what to replace by what, the law that is broken, and a word of its hint.
MISTAKES = {
    "a product of both sides": (
        "adapters",
        "inputs + outputs",
        "inputs * outputs",
        "Adapters",
        "A has rank",
    ),
    "A alone": ("adapters", "(inputs + outputs)", "inputs", "Adapters", "A alone"),
    "B alone": ("adapters", "(inputs + outputs)", "outputs", "Adapters", "B alone"),
    "one block": ("adapters", "blocks * ", "", "Adapters", "one block"),
    "the frozen matmuls": (
        "adapters",
        "rank * (inputs + outputs)",
        "inputs * outputs",
        "Adapters",
        "frozen",
    ),
    "no scales": ("bits", " + 8 / block + 32 / (256 * block)", "", "Bits", "Where are the scales"),
    "no double quantization": (
        "bits",
        "8 / block + 32 / (256 * block)",
        "32 / block",
        "Bits",
        "not 32",
    ),
    "no scales of scales": ("bits", " + 32 / (256 * block)", "", "Bits", "scales of scales"),
    "both scales for a block": (
        "bits",
        "(256 * block)",
        "block",
        "Bits",
        "The 32 bits are shared by 256 scales, not added to each",
    ),
    "bytes of a weight": (
        "bits",
        "4 + 8 / block + 32 / (256 * block)",
        "0.5 + 1 / block + 4 / (256 * block)",
        "Bits",
        "not bytes",
    ),
    "256 weights share": ("bits", "32 / (256 * block)", "32 / 256", "Bits", "256 scales"),
    "gradients of frozen weights": (
        "tuning",
        "2 * others",
        "2 * others + 2 * (matmuls + others)",
        "Tuning",
        "no gradients",
    ),
    "state of frozen weights": (
        "tuning",
        "2 * others",
        "2 * others + 14 * (matmuls + others)",
        "Tuning",
        "nor state",
    ),
    "no weights of adapters": (
        "tuning",
        "(2 + 2 + 12)",
        "(2 + 12)",
        "Tuning",
        "Adapters have their own weights and gradients",
    ),
    "other weights are trained": (
        "tuning",
        "2 * others",
        "16 * others",
        "Tuning",
        "are frozen, too",
    ),
    "optimizer state only": (
        "tuning",
        "(2 + 2 + 12)",
        "12",
        "Tuning",
        "12 bytes, in addition to weight and gradient",
    ),
    "no master copy": ("tuning", "(2 + 2 + 12)", "(2 + 2 + 8)", "Tuning", "12 bytes"),
    "bits are bytes": ("tuning", "bits / 8", "bits", "Tuning", "A byte has eight bits"),
    "all weights in 4 bits": (
        "tuning",
        "matmuls * bits / 8 + 2 * others",
        "(matmuls + others) * bits / 8",
        "Tuning",
        "Only the blocks",
    ),
    "no other weights": ("tuning", "2 * others", "0", "Tuning", "stay in 16 bits"),
    "ZeRO one level too high": ("state", "zero >= 2", "zero >= 1", "State", "of ZeRO 2"),
    "ZeRO 3 shards no weights": ("state", "zero == 3", "zero > 3", "State", "of ZeRO 2"),
    "shards without ZeRO": ("state", "zero >= 1", "zero >= 0", "State", "of ZeRO 1"),
    "no fp32 copy": ("state", "12 /", "8 /", "State", "copy of the weights"),
    "no gradients": (
        "state",
        "kept + gradients + optimizer",
        "kept + optimizer",
        "State",
        "Gradients?",
    ),
    "of all GPUs": (
        "state",
        "return weights",
        "return devices * weights",
        "State",
        "bytes per GPU",
    ),
    "nothing is served": ("tokens", " - served / 3", "", "Tokens", "a part of the budget"),
    "a served token is a trained one": (
        "tokens",
        "served / 3",
        "served",
        "Tokens",
        "2 FLOP per weight",
    ),
    "tokens below zero": (
        "tokens",
        "max(rate * days * 86400 - served / 3, 0)",
        "rate * days * 86400 - served / 3",
        "Tokens",
        "return 0, not less",
    ),
    "hours": ("tokens", "86400", "1", "Tokens", "86,400"),
    "memory is no limit": (
        "choose",
        'size["bytes"] > room or not seen',
        "not seen",
        "Choice: it is",
        "too much",
    ),
    "what is not trained is compared": (
        "choose",
        " or not seen",
        "",
        "Choice: it is",
        "is trained on 0 tokens",
    ),
    "the largest that fits": (
        "choose",
        "found < least",
        "True",
        "Choice: no size",
        "largest that fits",
    ),
    "the smallest": (
        "choose",
        "found < least",
        "best == 0 and least > found and place == 0",
        "Choice: no size",
        "most tokens",
    ),
    "served tokens are forgotten": (
        "choose",
        "days, served)\n        if",
        "days, 0)\n        if",
        "Choice: no size",
        "nats above",
    ),
    "20 tokens per parameter": (
        "choose",
        'found = loss(size["weights"], seen)',
        'ratio = tokens(size["rate"], days, 0) / size["weights"] / 20\n        found = max(ratio, 1 / ratio)',
        "Choice: no size",
        "",
    ),
    "tokens before weights": (
        "choose",
        'loss(size["weights"], seen)',
        'loss(seen, size["weights"])',
        "Choice: no size",
        "weights, then tokens",
    ),
    "no place": (
        "choose",
        "return best",
        "return sizes[best]['weights']",
        "Choice: it is",
        "expected the index of a size, 0 to",
    ),
}
