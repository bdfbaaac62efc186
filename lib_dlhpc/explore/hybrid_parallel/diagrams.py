"""Diagrams of the slides of module 05: what each kind divides, GPT-3 on its nodes, sixteen devices, a rack."""

from lib_dlhpc.explore.blocks.bench import amount
from lib_dlhpc.explore.hybrid_parallel import domain, runs
from lib_dlhpc.explore.hybrid_parallel import map as layouts
from lib_dlhpc.explore.hybrid_parallel.deep import Deep
from lib_dlhpc.explore.slides import diagram as kit
from lib_dlhpc.explore.slides.parts import of_steps
from lib_dlhpc.layout import Place, group, rank_at, sizes
from lib_dlhpc.prediction import predict

TENSOR, STAGES, PER_NODE = 8, 12, 8
SHARED = Deep().shared  # devices of a replica


def gpt3() -> kit.Diagram:
    """Return the ranks of GPT-3 by stage and replica: each cell is a node, whose GPUs split layers."""
    run = layouts.experiment_of(layouts.Ways(), TENSOR, STAGES)
    size = sizes(run)
    shown = (0, 1, STAGES - 1)
    rows = []
    for replica in range(size.data):
        cells = []
        for stage in shown:
            own = group(run, rank_at(run, Place(stage, replica, 0, 0)), "tensor")
            cells.append(f"ranks {own[0]} to {own[-1]}")
        rows.append(kit.Row(f"replica {replica}", [*cells[:2], "…", cells[2]]))
    return kit.held(
        ("stage 0", "stage 1", "…", f"stage {STAGES - 1}"), rows, "activations from stage to stage"
    )


def domains() -> kit.Diagram:
    """Return a group of ranks on nodes of eight, and in one rack, with the bandwidths of the links."""
    own = domain.Setting()
    node, rack = (domain.experiment(own, where).machine for where in (domain.NODES, domain.RACK))
    inside, outside, joined = (
        f"{amount('B/s')(link.bandwidth * link.efficiency)} per GPU"
        for link in (node.intra_node, node.inter_node, rack.intra_node)
    )
    names = ("node 0", "node 1", "…", f"node {own.ranks // PER_NODE - 1}")
    nodes = kit.across((f"{name}\n8 GPUs" for name in names), 0.22, high=0.24)
    links = [(each, "network") for each in nodes]
    nodes["network"] = kit.Node(0.5, 0.5, f"NICs: {outside}", kit.ORANGE, 0.9, 0.12)
    nodes["rack"] = kit.Node(
        0.5, 0.87, f"{own.ranks} GPUs of a rack\nNVLink: {joined}", kit.GREEN, 0.9, 0.25
    )
    words = [
        kit.Shape(0, 0, 1, 0.09, f"nodes of 8: NVLink inside, {inside}"),
        kit.Shape(0, 0.64, 1, 0.09, "GB200 NVL72: one domain"),
    ]
    return kit.linked(nodes, links, words, both=True)


def eight() -> kit.Diagram:
    """Return a step of a small GPT on one rank, and on eight as 2 × 2 × 2."""
    split = runs.Setting("words", 2, 2, 2, 4)
    steps = {"1 rank": split.alone, "8 ranks": split}
    return of_steps({name: predict(runs.experiment(each)) for name, each in steps.items()})


DIAGRAMS = kit.written(globals()) | {
    "Which layout of GPT-3 is the fastest?": gpt3,
    "What if NVLink joins 64 GPUs?": domains,
    "eight_ranks: answer": eight,
}
