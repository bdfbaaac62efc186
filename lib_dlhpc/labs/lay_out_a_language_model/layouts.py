"""A language model on 64 devices: the legal layouts, the ledger's bytes of each, and the fastest that fits.

task_of(seed)             a learner's LayoutTask: model, machine and global batch
task.layouts              the legal layouts, plain data, as are task.model and task.machine
task.experiment_of(one)   a layout as an experiment
first_stage(task, one)    B of the first stage's fullest device, by the terms of TERMS
fastest(task)             the layout with the shortest step of those that fit, and its seconds: exact
"""

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from math import inf
from typing import NamedTuple

import numpy as np

from lib_dlhpc.layout import stage_cut
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.prediction.memory.rank_memory import moments, peak
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import parse_quantity

NODES, PER_NODE = 8, 8
DEVICES = NODES * PER_NODE
SLACK = 0.98  # of a lower bound: stages are not quite equal
EXCHANGES = 8  # of a block within a tensor group, forward and backward; nearer to 10
TERMS = {  # a learner's terms, and the ledger's
    "weights": ("weights",),
    "gradients": ("gradients",),
    "optimizer state": ("master weights", "optimizer state"),
    "activations": ("activations",),
}
# layers, hidden, feed_forward, heads, kv_heads; B of a device beside a learner's terms: its working set, buffers and
# driver, the most in any layout; memories of a device
SIZES = (
    ((32, 4096, 14336, 32, 8), 5.5e9, ("24 GB", "40 GB")),
    ((40, 5120, 13824, 40, 8), 6e9, ("32 GB", "40 GB", "80 GB")),
    ((48, 6144, 16384, 48, 8), 7e9, ("40 GB", "80 GB")),
    ((64, 5120, 27648, 40, 8), 8.5e9, ("48 GB", "80 GB")),
)
NETWORKS = ("ib-ndr", "ib-hdr", "ethernet-100g")


class Model(NamedTuple):
    """A decoder as Llama's: grouped queries, a gated feed-forward of three products, embedding and head not tied."""

    layers: int
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    vocabulary: int
    sequence: int

    @property
    def flop(self) -> float:
        """FLOP of the forward and backward pass of a sequence, all scores counted, also those that a mask drops."""
        kv = self.hidden // self.heads * self.kv_heads
        block = 2 * self.hidden * (self.hidden + kv) + 3 * self.hidden * self.feed_forward
        products = 6.0 * (self.layers * block + self.vocabulary * self.hidden) * self.sequence
        return products + 12.0 * self.layers * self.hidden * self.sequence**2


class Machine(NamedTuple):
    """Devices, neighbors in nodes of `per_node`. memory, reserve: B of a device, and of these beside your terms.

    rate: FLOP/s that a device reaches without a split. nvlink, nic: B/s of a device within its node, and out of it.
    """

    devices: int
    per_node: int
    memory: float
    reserve: float
    rate: float
    nvlink: float
    nic: float


class Layout(NamedTuple):
    """Degrees of parallelism, whose product is all devices, the nearest ranks first; a microbatch is one sequence.

    microbatches: of a replica. blocks: of the first stage, nearly always layers / pipeline.
    """

    tensor: int
    context: int
    data: int
    pipeline: int
    microbatches: int
    blocks: int
    zero: int
    recompute: str


@dataclass(frozen=True)
class LayoutTask:
    """A learner's run. batch: sequences of a step, all devices together."""

    model: Model
    reserve: float
    memory: str
    network: str
    nics: int
    batch: int

    @cached_property
    def layouts(self) -> tuple[Layout, ...]:
        """All legal layouts."""
        found = []
        for tensor, context, pipeline in product((1, 2, 4, 8), (1, 2, 4), (1, 2, 4)):
            data = DEVICES // (tensor * context * pipeline)
            if data < 1 or self.batch % data:
                continue
            for recompute in ("none", "full"):
                one = Layout(tensor, context, data, pipeline, self.batch // data, 0, 1, recompute)
                one = one._replace(blocks=_blocks(self.experiment_of(one)))
                found += [one, one._replace(zero=3)]
        return tuple(found)

    @cached_property
    def machine(self) -> Machine:
        """The machine as a learner's functions are given it."""
        plain = self.experiment_of(self.layouts[0]).machine
        nic = float(plain.inter_node.bandwidth) * float(plain.inter_node.efficiency)
        near = float(plain.intra_node.bandwidth) * float(plain.intra_node.efficiency)
        memory = float(parse_quantity(self.memory, "B"))
        links = near, nic * self.nics / PER_NODE
        rate = self.model.flop / sum(passes_of(self))
        return Machine(DEVICES, PER_NODE, memory, self.reserve, rate, *links)

    def experiment_of(self, one: Layout) -> Experiment:
        """Return the run with a layout."""
        device = {"name": "h100-sxm-80gb", "memory": self.memory}
        machine = {"name": "h100-pod", "jitter": 0.0, "nics": self.nics, "device": device}
        fields = {name: each for name, each in one._asdict().items() if name != "blocks"}
        strategy = fields | {"batch": one.microbatches, "nodes": NODES, "precision": "bf16"}
        strategy |= {"optimizer": "adam", "context_exchange": "ring"}
        return read_experiment(
            {
                "model": {"family": "llama", **self.model._asdict()},
                "dataset": {"name": "webtext"},
                "machine": machine | {"inter_node": self.network},
                "strategy": strategy | {"sequence_parallel": one.tensor > 1},
            }
        )


def _blocks(experiment: Experiment) -> int:
    """Return the blocks of the first stage."""
    stop = stage_cut(experiment)[0]
    names = (layer.name.split(".")[0] for layer in experiment.model.layers[:stop])
    return len({name for name in names if name.startswith("layer")})


@cache
def task_of(seed: int) -> LayoutTask:
    """Return a learner's own task: one in which replicas that shard all weights do not fit."""
    rng = np.random.default_rng([seed, 12])
    while True:
        (layers, hidden, wide, heads, groups), reserve, memories = SIZES[rng.integers(len(SIZES))]
        length = int(rng.choice([4096, 8192]))
        model = Model(layers, hidden, wide, heads, groups, 32000, length)
        network, nics = NETWORKS[int(rng.integers(len(NETWORKS)))], int(rng.choice([4, 8]))
        memory = memories[int(rng.integers(len(memories)))]
        task = LayoutTask(model, reserve, memory, network, nics, int(rng.choice([128, 256])))
        if not fits(task, Layout(1, 1, DEVICES, 1, task.batch // DEVICES, 0, 3, "none")):
            return task


def passes_of(task: LayoutTask) -> tuple[float, float]:
    """Return the s of a forward and of a backward pass of a sequence on one device, without a split."""
    plain, many = predicted(task, task.layouts[0]), task.layouts[0].microbatches
    return float(plain.forward) / many, float(plain.backward) / many


@cache
def first_stage(task: LayoutTask, one: Layout) -> dict[str, float]:
    """Return what a device of the first stage holds at its peak, B by learner's term."""
    found = moments(task.experiment_of(one))[1]  # of rank 0 of the pipeline, in a backward pass
    return {term: sum(found.terms[each] for each in those) for term, those in TERMS.items()}


def fits(task: LayoutTask, one: Layout) -> bool:
    """Return whether the fullest device has the memory, by the ledger."""
    experiment = task.experiment_of(one)
    return bool(peak(experiment).total <= experiment.machine.device.memory)


def predicted(task: LayoutTask, one: Layout) -> Breakdown:
    """Return the prediction of a layout."""
    return predict(task.experiment_of(one))


@cache
def fastest(task: LayoutTask) -> tuple[Layout, float]:
    """Return the layout with the shortest step of those that fit, and its s.

    Exact: in the order of a lower bound, until no other can be faster.
    """
    bound = bounds(task)
    best, least = task.layouts[0], inf
    for one in sorted(task.layouts, key=lambda each: bound[each]):
        if bound[one] > least:
            break
        if fits(task, one):
            seconds = float(predicted(task, one).step_time)
            best, least = min((best, least), (one, seconds), key=lambda each: each[1])
    return best, least


def bounds(task: LayoutTask) -> dict[Layout, float]:
    """Return s that no step of a layout is below.

    A split computes no faster than its share of the whole, tensor groups exchange at most at their link's rate, stages
    wait for at least their bubble, and full recomputation repeats the forward pass.
    """
    forward, backward = passes_of(task)

    def bound(one: Layout) -> float:
        work = forward * (2 if one.recompute == "full" else 1) + backward
        share = work / (one.tensor * one.context * one.pipeline)
        sent = 2 * task.model.hidden * task.model.sequence / one.context * (1 - 1 / one.tensor)
        waits = EXCHANGES * task.model.layers / one.pipeline * sent / task.machine.nvlink
        return (share + waits) * (one.microbatches + one.pipeline - 1)

    return {one: SLACK * bound(one) for one in task.layouts}
