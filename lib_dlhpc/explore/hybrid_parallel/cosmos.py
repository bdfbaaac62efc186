"""A cube that no GPU can hold: the cosmology network, its samples cut into slabs. What do more GPUs buy?

the_cubes()     the experiment: memory, one step, weak and strong scaling on the machine of Oyama et al.
cosmos()        that run, with its published rate turned into the compute time of a slab
"""

from functools import cache, lru_cache
from typing import Any, NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.costs.split_calibration import scale_of
from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, wall_html, workbench
from lib_dlhpc.explore.hybrid_parallel.charts import (
    held_by,
    memory_state,
    parts_of,
    scaling_state,
    terms_state,
)
from lib_dlhpc.prediction import Breakdown, breakdown
from lib_dlhpc.prediction.published import UNITS, results
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import format_quantity

EDGES = (128, 256, 512)
SLABS = (1, 2, 4, 8, 16, 32)
GPUS = (32, 64, 128, 256, 512, 1024, 2048)
SAMPLES = (1, 2, 4, 8)
TIERS = {"": "memory already", "gpfs": "GPFS, shared by all", "nvme": "the NVMe of each node"}
PER_NODE = 4
MOST_NODES = 1024  # the machine had 792; beyond, more of the same is assumed
UNIVERSES = 8192  # cubes of 512 points an edge; smaller ones are cut out of them
POINT = 2  # B, a count of particles
PUBLISHED = "oyama19-512"
NOTABLE, SUMMED = 0.05, 0.2  # share of a step from which halos or input, or gradients, are a wall


class Cubes(NamedTuple):
    """What the experiment sets: points an edge, GPUs a sample, GPUs, samples a replica, where from."""

    edge: int = 512
    slabs: int = 4
    gpus: int = 512
    samples: int = 1
    tier: str = ""


def the_cubes() -> ipywidgets.Box:
    """Return the experiment: memory of a GPU, what twice the GPUs bring, weak and strong scaling."""
    controls = {
        "edge": slider(
            "Edge", "Points along an edge of the cube", [(f"{e}³", e) for e in EDGES], 512
        ),
        "slabs": slider(
            "GPUs a sample", "Slabs into which each cube is cut", [(str(s), s) for s in SLABS], 4
        ),
        "gpus": slider("GPUs", "In nodes of 4", [(f"{p:,}", p) for p in GPUS], 512),
        "samples": slider(
            "Samples at once", "Samples of a replica in a step", [(str(n), n) for n in SAMPLES], 1
        ),
        "tier": dropdown(
            "Cubes are in",
            "Where samples are read from",
            [(words, tier) for tier, words in TIERS.items()],
            "",
        ),
    }
    verdict, wall = ipywidgets.HTML(), ipywidgets.HTML()
    memory, bars, lines = chart("hybrid_memory"), chart("hybrid_terms"), chart("hybrid_scaling")

    def show() -> None:
        setting = Cubes(**{name: control.value for name, control in controls.items()})
        memory.update(*memory_view(setting))
        bars.update(*bars_view(setting))
        lines.update(*scaling_view(setting))
        verdict.value = f'<p class="dlhpc-verdict">{cubes_words(setting)}</p>'
        wall.value = wall_html(cubes_wall(setting), "It fits, and computation dominates.")

    note = "which part of the bar grows when each cube is cut finer, and which does not shrink."
    return workbench(controls, [verdict, wall, memory, bars, lines], show, note)


@lru_cache(maxsize=64)
def cosmos(edge: int = 512) -> Experiment:
    """Return the run of Oyama et al. 2019 with cubes of that edge: a sample on four GPUs, 512 GPUs."""
    samples = UNIVERSES * (512 // edge) ** 3
    cubes = {
        "name": "cosmoflow",
        "samples": samples,
        "files": samples,
        "bytes": samples * 4 * edge**3 * POINT,
        "sample_shape": [4, edge, edge, edge],
    }
    return read_experiment(
        {
            "model": {"name": "cosmoflow-512", "image": edge},
            "dataset": cubes,
            "machine": {"name": "lassen", "nodes": MOST_NODES},
            "strategy": {"nodes": 512 // PER_NODE, "spatial": 4, "batch": 1, "optimizer": "adam"},
        }
    )


@cache
def slowness() -> float:
    """Return the compute time of the published run over that of the roofline."""
    run = cosmos()
    return scale_of(published_step(), lambda scale: float(breakdown(run, scale).step_time))


def published_step() -> float:
    """Return the seconds of a step of the published run: its FLOP over its FLOP/s."""
    row, run = results()[PUBLISHED], cosmos()
    rate = float(row["value"]) * UNITS.get(row["unit"], 1e15)
    return float(run.global_batch * run.model.train_flop / rate)


@lru_cache(maxsize=1024)
def step_of(setting: Cubes) -> Breakdown:
    """Return the prediction of what the controls describe."""
    changes = {
        "strategy.nodes": setting.gpus // PER_NODE,
        "strategy.spatial": setting.slabs,
        "strategy.batch": setting.samples,
        "storage.tier": setting.tier,
    }
    return breakdown(cosmos(setting.edge).set(changes), slowness())


def memory_view(setting: Cubes) -> State:
    """Return the columns of the memory chart: the same samples on 1, 2, 4 ... GPUs."""
    rows = {}
    for slabs in SLABS:
        yours = "yours: " * (slabs == setting.slabs)
        name = f"{yours}{slabs} GPU{'s' * (slabs > 1)} a sample"
        rows[name] = held_by(step_of(setting._replace(slabs=slabs)))
    return memory_state(rows, float(cosmos().machine.device.memory))


def bars_view(setting: Cubes) -> State:
    """Return the columns of the bars: the choice, and twice the GPUs, spent in two ways."""
    rows = {"yours": parts_of(step_of(setting))}
    rows["twice: cut finer"] = parts_of(step_of(finer(setting)))
    rows["twice: more samples"] = parts_of(step_of(setting._replace(gpus=2 * setting.gpus)))
    return terms_state(rows)


def finer(setting: Cubes, times: int = 2) -> Cubes:
    """Return the same samples a step on `times` the GPUs."""
    return setting._replace(gpus=times * setting.gpus, slabs=times * setting.slabs)


def scaling_view(setting: Cubes) -> State:
    """Return the columns of the lines: cubes as they are cut, and cubes cut ever finer; what fits."""
    least = setting.gpus // setting.slabs  # GPUs where each sample has one
    strong = [finer(setting._replace(gpus=least, slabs=1), s) for s in SLABS]
    weak = [setting._replace(gpus=p) for p in (*GPUS, MOST_NODES * PER_NODE)]
    curves = {}
    for name, settings in (("weak", weak), ("strong", strong)):
        legal = [each for each in settings if PER_NODE <= each.gpus <= MOST_NODES * PER_NODE]
        fitting = [each for each in legal if step_of(each).fits]
        rates = [float(step_of(each).throughput) for each in fitting]
        curves[name] = (np.array([each.gpus for each in fitting], dtype=float), np.array(rates))
    gpus = np.unique([*curves["weak"][0], *curves["strong"][0]])
    here = step_of(setting)
    curves["ideal"] = (gpus, gpus * float(here.throughput) / setting.gpus)
    known = []
    if setting.edge == 512:
        rate = float(cosmos().global_batch) / published_step()
        known = [(512, rate, f"Oyama et al. 2019: 512 GPUs, {rate:,.0f} samples a second")]
    return scaling_state(curves, known, setting.gpus)


def cubes_words(setting: Cubes) -> str:
    """Say how long a step takes and how much memory it needs."""
    step = step_of(setting)
    groups = setting.gpus // setting.slabs
    return (
        f"<b>{groups:,} × {setting.slabs} GPUs, {groups * setting.samples:,} samples a step:"
        f" {_time(step.step_time)}.</b> A GPU needs {_size(step.memory_total)}; halos expose"
        f" {_time(step.exposed.get('halo', 0.0))}, gradients {_time(step.exposed['data'])};"
        f" {float(step.compute / step.step_time):.0%} of the time is computation."
        + f" Reading a batch takes {_time(step.input_time)} meanwhile."
        * bool(setting.tier)
    )


def cubes_wall(setting: Cubes) -> str:
    """Say which limit the choice meets first, or nothing."""
    step, machine = step_of(setting), cosmos().machine
    if not step.fits:
        enough = [s for s in SLABS if step_of(setting._replace(slabs=s)).fits]
        way = f"it takes {enough[0]} GPUs a sample" if enough else "take fewer samples at once"
        return (
            f"Memory: a GPU needs {_size(step.memory_total)} and has {_size(machine.device.memory)};"
            f" {way}. More replicas would not help: each processes whole cubes."
        )
    whole = float(step.step_time)
    if float(step.input_stall) > NOTABLE * whole:
        return (
            f"Input: a batch is {_size(_batch_bytes(setting))} and takes {_time(step.input_time)} to read;"
            f" every GPU is idle for {_time(step.input_stall)} a step."
        )
    halo = float(step.exposed.get("halo", 0.0))
    if halo > NOTABLE * whole:
        return (
            f"The surface: halos take {_time(halo)}, {halo / whole:.0%} of the step. A slab half as thick"
            " computes half as much and exchanges the same."
        )
    gradients = float(step.exposed["data"])
    if gradients > SUMMED * whole:
        return (
            f"The allreduce of the gradients: {_time(gradients)}, {gradients / whole:.0%} of the step. Finer slabs"
            " shrink the computation, but every GPU still has all weights."
        )
    return ""


def memory_alone(edge: int = 512) -> float:
    """Return the GB that one sample takes on one GPU."""
    return float(step_of(Cubes(edge, 1)).memory_total) / 1e9


def strong_gain(more: int = 32) -> float:
    """Return how many times faster the published batch is where each cube is cut into `more`, not 4."""
    times = more // 4
    return float(step_of(Cubes()).step_time / step_of(finer(Cubes(), times)).step_time)


def _batch_bytes(setting: Cubes) -> float:
    run = step_of(setting).experiment
    return float(run.global_batch * run.dataset.sample_bytes)


def _time(seconds: Any) -> str:
    return format_quantity(float(seconds), "s")


def _size(count: Any) -> str:
    return format_quantity(float(count), "B")
