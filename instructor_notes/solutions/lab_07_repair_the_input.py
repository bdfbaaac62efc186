"""Lab 7, repair the input: a solution, and mistakes by name."""

import random

from lib_dlhpc.storage import open_store, pack


def rate(operations, reads, size, decode, tier, readers):
    """Return the samples a second that come: the lowest of what readers, servers and bandwidth allow."""
    one = operations * tier.operation_latency + reads * tier.read_latency
    one += size / tier.reader_bandwidth + decode
    limits = [readers / one, tier.bandwidth / size]
    if operations:
        limits.append(tier.metadata_rate / operations)
    return min(limits)


def prepare(folder, target):
    """Pack the samples, once."""
    pack(folder, target)


def batches(target, run):
    """Yield the batches of the whole run, the next one on its way meanwhile."""

    def plan(names):
        for epoch in range(run.epochs):
            mixed = list(names)
            random.Random(run.seed + epoch).shuffle(mixed)
            own = mixed[run.rank :: run.ranks]
            for first in range(0, len(own), run.batch):
                yield own[first : first + run.batch]

    with open_store(target, comm=run.comm) as store:
        names = sorted(name for name in store.names if name.endswith(".img"))
        for files in store.read_ahead(plan(names), ahead=1):
            yield [run.decode(data) for data in files]


ONE, ALL = "Your formula: what one", "Your formula: what all"
# mistake -> (function, text, what stands there instead, the law that must break, its words)
MISTAKES = {
    "one reader": ("rate", "readers / one", "1 / one", ONE, "That is the rate of one reader"),
    "no metadata": (
        "rate",
        "operations * tier.operation_latency",
        "0",
        ONE,
        "Where is the time for the operations",
    ),
    "no first byte": ("rate", "reads * tier.read_latency", "0", ONE, "first byte"),
    "nobody decodes": ("rate", " + decode", "", ONE, "Who decodes"),
    "no transfer": (
        "rate",
        "size / tier.reader_bandwidth + decode",
        "decode",
        ONE,
        "A single reader needs time for its bytes",
    ),
    "no servers": ("rate", "if operations:", "if False:", ALL, "the metadata servers"),
    "no tier": ("rate", ", tier.bandwidth / size]", "]", ALL, "bandwidth of the tier"),
    "limits add up": (
        "rate",
        "min(limits)",
        "1 / sum(1 / each for each in limits)",
        ALL,
        "Limits do not add up",
    ),
    "divided by none": ("rate", "if operations:", "if True:", ONE, "ZeroDivisionError"),
    "nothing is left": ("prepare", "pack(folder, target)", "pass", "The samples", "leaves nothing"),
    "not a sample": (
        "batches",
        ' if name.endswith(".img")',
        "",
        "The samples",
        "Samples are the files *.img; labels.txt is not one",
    ),
    "the same order": (
        "batches",
        "run.seed + epoch",
        "run.seed",
        "The samples",
        "next one does not",
    ),
    "another seed": (
        "batches",
        "run.seed + epoch",
        "epoch",
        "The samples",
        "In which order are they before the shuffle, and what is the seed of the shuffle",
    ),
    "another order": (
        "batches",
        "list(names)",
        "list(reversed(names))",
        "The samples",
        "In which order",
    ),
    "no short batch": (
        "batches",
        "len(own), run",
        "len(own) - run.batch + 1, run",
        "The samples",
        "short batch",
    ),
    "not decoded": (
        "batches",
        "run.decode(data) for",
        "__import__('numpy').frombuffer(data, 'u1') for",
        "The samples",
        "are not samples",
    ),
    "all is everyone's": (
        "batches",
        "mixed[run.rank :: run.ranks]",
        "mixed",
        "On 3 ranks",
        "more than once",
    ),
    "the rest is nobody's": (
        "batches",
        "mixed[run.rank :: run.ranks]",
        "mixed[run.rank : len(mixed) // run.ranks * run.ranks : run.ranks]",
        "On 3 ranks",
        "seen by no rank",
    ),
    "opened again": (
        "batches",
        "in store.read_ahead(plan(names), ahead=1)",
        "in (open_store(target).read_many(part) for part in plan(names))",
        "No list",
        "opened again",
    ),
    "one by one": (
        "batches",
        "store.read_ahead(plan(names), ahead=1)",
        "([store.read(name) for name in part] for part in plan(names))",
        "One request",
        "where are all names of a batch known",
    ),
    "decoded twice": (
        "batches",
        "in files]",
        "in files if run.decode(data).size]",
        "No sample",
        "Which samples are decoded needlessly",
    ),
    "nothing ahead": (
        "batches",
        "store.read_ahead(plan(names), ahead=1)",
        "map(store.read_many, plan(names))",
        "The next batch",
        "while the GPU computes",
    ),
    "all at once": ("batches", "ahead=1", "ahead=1000", "No more than", "How far ahead"),
    "kept": (
        "batches",
        "store.read_ahead(plan(names), ahead=1)",
        "(lambda had: ([had[n] for n in part] for part in plan(names)))(dict(zip(names, store.read_many(names))))",
        "Each sample",
        "Samples were cached",
    ),
}
