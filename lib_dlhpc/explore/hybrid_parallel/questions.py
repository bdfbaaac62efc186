"""What module 05 asks: the figures and the numbers of lesson.toml."""

from typing import Any

import numpy as np

from lib_dlhpc.explore.blocks.bench import amount
from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.numeric import Drawn
from lib_dlhpc.explore.blocks.question import Later
from lib_dlhpc.explore.hybrid_parallel import cosmos, deep, domain, live
from lib_dlhpc.explore.hybrid_parallel import map as layouts
from lib_dlhpc.explore.hybrid_parallel.charts import best_of, parts_of
from lib_dlhpc.explore.hybrid_parallel.cosmos import SLABS, Cubes, finer, step_of
from lib_dlhpc.explore.hybrid_parallel.deep import Deep
from lib_dlhpc.explore.hybrid_parallel.domain import NODES, RACK
from lib_dlhpc.explore.hybrid_parallel.domain import Setting as Group
from lib_dlhpc.explore.hybrid_parallel.map import Ways
from lib_dlhpc.explore.hybrid_parallel.published import published_table
from lib_dlhpc.explore.hybrid_parallel.runs import Setting

seconds = amount("s")
READ = Cubes(tier="gpfs")


def longer(setting: Cubes) -> float:
    """Return how many times as long a step is as that of the page's first cubes."""
    return float(step_of(setting).step_time / step_of(Cubes()).step_time)


def largest() -> str:
    """Say which two parts of a step of small cubes in thin slabs are the longest beside computation."""
    parts = parts_of(step_of(Cubes(256, 32)))
    del parts["compute"]
    first, second, *_ = sorted(parts, key=lambda name: -parts[name])
    return f"{first}, {seconds(parts[first])}, then {second}, {seconds(parts[second])}"


def step(tensor: int, pipeline: int, microbatch: int = 1) -> float:
    """Return the seconds of a step of GPT-3."""
    return layouts.predicted(Ways(microbatch=microbatch), tensor, pipeline).seconds


def lost(tensor: int) -> float:
    """Return what microbatches of 8 add to a step of GPT-3 in 12 stages."""
    return step(tensor, 12, 8) / step(tensor, 12) - 1


def image_terms(stages: int, slabs: int, part: str) -> str:
    """Return the time of a part of a step on large images."""
    return seconds(deep.predicted(Deep(), stages, slabs).terms[part])


def best(**choice: Any) -> str:
    """Return the fastest layout that fits."""
    found = best_of(list(deep.ways_of(Deep(**choice))))
    return deep.name_of(found) if found else "none"


def waits(where: str, **changes: Any) -> str:
    """Return the share of a step that waits for the exchange of a group."""
    return f"{domain.exposed(Group(**changes), where):.0%}"


def grouped(where: str, **changes: Any) -> domain.Found:
    """Return the prediction of a group on nodes of 8, or in racks."""
    return domain.predicted(Group(**changes), where)


def link(where: str, within: bool) -> str:
    """Return the bandwidth that a machine's links reach, inside a domain or between nodes, per GPU."""
    machine = domain.experiment(Group(), where).machine
    own = machine.intra_node if within else machine.inter_node
    return amount("B/s")(own.bandwidth * own.efficiency)


def own_halo(draw: np.random.Generator) -> Drawn:
    """Return the slabs of one learner, and the share of their halos in percent."""
    edge, slabs = int(draw.choice([64, 128, 256])), int(draw.choice([4, 8, 16]))
    wrong = {"one_side": 100 * slabs / edge, "of_the_cube": 100 * 2 / edge}
    return {"edge": edge, "slabs": slabs}, 100 * 2 * slabs / edge, wrong


def own_bubble(draw: np.random.Generator) -> Drawn:
    """Return the layout of one learner, and its bubble in percent."""
    tensor, pipeline = int(draw.choice([2, 4, 8])), int(draw.choice([4, 8, 16]))
    replicas, each = int(draw.choice([4, 8])), int(draw.choice([16, 32, 64]))
    own = {"tensor": tensor, "pipeline": pipeline, "batch": replicas * each}
    wrong = {
        "of_the_step": 100 * (pipeline - 1) / (pipeline - 1 + each),
        "whole_batch": 100 * (pipeline - 1) / (replicas * each),
        "all_stages": 100 * pipeline / each,
    }
    own["gpus"] = tensor * pipeline * replicas
    return own, 100 * (pipeline - 1) / each, wrong


DOMAIN = {
    "node_64": lambda: waits(NODES),
    "node_16": lambda: waits(NODES, ranks=16),
    "node_8": lambda: waits(NODES, ranks=8),
    "rack_8": lambda: waits(RACK, ranks=8),
    "rack_64": lambda: waits(RACK),
    "direct_64": lambda: waits(NODES, sent="direct"),
    "h100_64": lambda: waits(NODES, pod="h100-pod"),
    "tensor_8": lambda: waits(RACK, divided="tensor", ranks=8),
    "tensor_64": lambda: waits(RACK, divided="tensor"),
    "step_8": lambda: seconds(grouped(RACK, divided="tensor", ranks=8).seconds),
    "step_64": lambda: seconds(grouped(RACK, divided="tensor").seconds),
    "node_step_8": lambda: seconds(grouped(NODES, ranks=8).seconds),
    "node_step_64": lambda: seconds(grouped(NODES).seconds),
    "rack_step_8": lambda: seconds(grouped(RACK, ranks=8).seconds),
    "rack_step_64": lambda: seconds(grouped(RACK).seconds),
    "wait_node": lambda: seconds(grouped(NODES).waits),
    "wait_rack": lambda: seconds(grouped(RACK).waits),
    "memory_8": lambda: amount("B")(grouped(RACK, ranks=8).held),
    "memory_64": lambda: amount("B")(grouped(RACK).held),
    "nvlink": lambda: link(RACK, within=True),
    "nic": lambda: link(NODES, within=False),
}
the_map, the_deep = Later(layouts.the_map), Later(deep.the_deep)
lesson = Lesson.read(
    __file__,
    outcomes={
        "one_cube": (cosmos.memory_alone, cosmos.the_cubes),
        "across_nodes": (the_map.gives(layouts.tensor_across), lambda: the_map.box),
        "sixteen_devices": (the_deep.gives("stages and slabs"), lambda: the_deep.box),
        "beyond_a_node": (lambda: 100 * domain.exposed(Group(), RACK), domain.the_domain),
        "eight_ranks": (lambda: live.times_as_fast(Setting("words", 2, 2, 2, 4)), live.split_here),
    },
    numbers={
        **DOMAIN,
        "fewest": lambda: next(s for s in SLABS if step_of(Cubes(slabs=s)).fits),
        "finer": lambda: longer(finer(Cubes())),
        "more": lambda: longer(Cubes(gpus=1024)),
        "largest": largest,
        "reads": lambda: seconds(step_of(READ).input_time),
        "computes": lambda: seconds(step_of(READ).compute),
        "four": lambda: seconds(step(4, 12)),
        "eight": lambda: seconds(step(8, 12)),
        "lost_2": lambda: lost(2),
        "lost_8": lambda: lost(8),
        "compute_stages": lambda: image_terms(16, 1, "compute"),
        "compute_slabs": lambda: image_terms(1, 16, "compute"),
        "halos": lambda: image_terms(1, 16, "halos"),
        "best_small": lambda: best(side=224),
        "best_xeon": lambda: best(machine="frontera"),
    },
    draws={"own_halo": own_halo, "own_bubble": own_bubble},
    tables={"published": published_table},
)
ask = lesson.ask
