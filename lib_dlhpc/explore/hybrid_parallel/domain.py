"""A domain of NVLink beyond a node: experts or tensor ranks, on nodes of eight and on racks of GB200 NVL72."""

from functools import lru_cache
from typing import Annotated, NamedTuple

import numpy as np

from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, amount, on_bench
from lib_dlhpc.explore.blocks.charts import State
from lib_dlhpc.explore.blocks.lines import Curves, line_columns, value_at, values_at
from lib_dlhpc.explore.hybrid_parallel.charts import parts_of, terms_state
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.clear_caches import forget
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.machine import load_machine

seconds, size = amount("s"), amount("B")
GPUS, RANKS = 512, (8, 16, 32, 64)
NODES, RACK = "nodes of 8", "rack of NVL72"
RACKS = "gb200-nvl72"
TRAYS = 16  # of a rack of 18: as many as divide the trays of a job of 512 GPUs, as NVIDIA's launcher has it


class Network(NamedTuple):
    """What is trained. divided: the purpose of the messages of a group; sequences: of a step."""

    model: str
    divided: str
    exchange: str
    sequences: int
    recompute: str


# The GPT of Korthikanti et al. 2022 has 64 heads, one for each rank, and few layers: a kernel stays small.
NETWORKS = {
    "experts": Network("deepseek-v3", "experts", "experts' all-to-all", 4_096, "full"),
    "tensor": Network("gpt-22b", "tensor", "tensor allreduces", 1_024, "selective"),
}
GROUPS = {"experts of DeepSeek-V3": "experts", "tensor ranks of GPT 22B": "tensor"}
PODS = {"B200": "b200-pod", "H100": "h100-pod"}
SENT = {"once to each node": "by-node", "once to each expert": "direct"}


class Found(NamedTuple):
    """What is kept of a prediction. parts: s, by TERMS; held: B of a GPU; waits: s for the group's exchange."""

    seconds: float
    waits: float
    held: float
    parts: dict[str, float]
    wall: str


class Setting(NamedTuple):
    """A group. pod: the machine with nodes of 8; sent: how a token travels to its experts."""

    divided: Annotated[str, Dropdown("Group", "What its ranks divide", GROUPS)] = "experts"
    ranks: Annotated[int, Slider("Ranks", "Of a group, of 512 GPUs", RANKS)] = 64
    pod: Annotated[str, Dropdown("Nodes of 8", "Compared with GB200", PODS)] = "b200-pod"
    sent: Annotated[str, Dropdown("A token is sent", "To experts", SENT)] = "by-node"


@on_bench(Setting(), "hybrid_domain", "hybrid_terms", fine="It fits.")
def the_domain(setting: Setting) -> View:
    """Look for where the line of the nodes leaves that of the rack: there a group begins to span nodes."""
    network = NETWORKS[setting.divided]
    steps = {where: predicted(setting, where) for where in (NODES, RACK)}
    node, rack = steps.values()
    words = (
        f"<b>{exposed(setting, NODES):.0%} of a step waits for the {network.exchange} on nodes of 8,"
        f" {exposed(setting, RACK):.0%} in racks of GB200 NVL72.</b> A step takes {seconds(node.seconds)} and"
        f" {seconds(rack.seconds)}. {_links(setting)} A GPU holds {size(rack.held)}."
    )
    bars = {where: found.parts for where, found in steps.items()}
    return View(
        words,
        node.wall or rack.wall,
        {"hybrid_domain": shares_state(setting), "hybrid_terms": terms_state(bars)},
    )


def _links(setting: Setting) -> str:
    """Say over what the ranks of a group reach each other."""
    if setting.ranks == RANKS[0]:
        return "On both machines NVLink joins all ranks of a group."
    nodes = setting.ranks // int(load_machine(setting.pod).devices_per_node)
    return f"A group spans {nodes} nodes, or one rack, whose NVLink joins all its ranks."


def shares_state(setting: Setting) -> State:
    """Share of a step that waits for the exchange of a group, against its ranks, on both machines."""
    curves: Curves = {
        where: (
            np.array(RANKS),
            np.array([exposed(setting._replace(ranks=each), where) for each in RANKS]),
        )
        for where in (NODES, RACK)
    }
    data = {**line_columns(curves), "now": value_at(curves, setting.ranks, lambda y: f"{y:.0%}")}
    each = ", ".join(f"{where} {share:.1%}" for where, share in values_at(curves, setting.ranks))
    what = NETWORKS[setting.divided].exchange
    return data, f"Share of a step that waits for the {what}, with {setting.ranks} ranks: {each}."


def exposed(setting: Setting, where: str) -> float:
    """Return the share of a step that waits for the exchange of the group. where: NODES or RACK."""
    found = predicted(setting, where)
    return found.waits / found.seconds


@lru_cache(maxsize=64)
def predicted(setting: Setting, where: str) -> Found:
    """Return what is shown of the prediction of a group on one of the machines."""
    step = predict(experiment(setting, where))
    forget()
    waits = float(step.exposed[NETWORKS[setting.divided].divided])
    wall = "" if step.fits else " ".join(step.walls)
    return Found(float(step.step_time), waits, float(step.memory_total), parts_of(step), wall)


def experiment(setting: Setting, where: str) -> Experiment:
    """Return the run on 512 GPUs: experts with 8 stages; tensor ranks with 64 / tensor stages."""
    network = NETWORKS[setting.divided]
    machine = {"name": setting.pod} if where == NODES else {"name": RACKS, "domain": TRAYS}
    nodes = GPUS // int(load_machine(str(machine["name"])).devices_per_node)
    tensor = setting.ranks if setting.divided == "tensor" else 1
    stages = RANKS[-1] // tensor if setting.divided == "tensor" else 8
    each = network.sequences * tensor * stages // GPUS
    strategy = {
        "nodes": nodes,
        "tensor": tensor,
        "sequence_parallel": tensor > 1,
        "pipeline": stages,
        "experts": setting.ranks if setting.divided == "experts" else 1,
        "expert_exchange": setting.sent if setting.divided == "experts" else "direct",
        "batch": each,
        "microbatches": each,
        "recompute": network.recompute,
        "zero": 1,
        "precision": "bf16",
        "optimizer": "adam",
    }
    tables = {"model": network.model, "machine": machine, "dataset": "webtext"}
    return read_experiment({**tables, "strategy": strategy})
