"""A cube that no GPU can hold: the cosmology network, its samples cut into slabs. What do more GPUs buy?

The machine is that of Oyama et al. 2019; their rate is turned into the compute time of a slab.
"""

from functools import cache, lru_cache
from typing import Annotated, NamedTuple

import numpy as np

from lib_dlhpc.costs import scale_of
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, amount, on_bench
from lib_dlhpc.explore.blocks.charts import State, columns
from lib_dlhpc.explore.blocks.lines import line_columns, value_at
from lib_dlhpc.explore.hybrid_parallel.charts import held_by, memory_state, parts_of, terms_state
from lib_dlhpc.prediction import Breakdown, breakdown
from lib_dlhpc.prediction.validation.published import UNITS, results
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import count, format_plain

seconds, size = amount("s"), amount("B")
EDGES = {"128³": 128, "256³": 256, "512³": 512}
SLABS = (1, 2, 4, 8, 16, 32)
GPUS = (32, 64, 128, 256, 512, 1024, 2048)
SAMPLES, AT_ONCE = (1, 2, 4, 8), "Samples of a replica in a step"
TIERS = {"memory already": "", "GPFS, shared by all": "gpfs", "the NVMe of each node": "nvme"}
PER_NODE = 4
MOST = 4096  # GPUs; the machine had 792 nodes, beyond, more of the same is assumed
UNIVERSES = 8192  # cubes of 512 points an edge; smaller ones are cut out of them
POINT = 2  # B, a count of particles
PUBLISHED = "oyama19-512"
NOTABLE, SUMMED = 0.05, 0.2  # share of a step from which halos or input, or gradients, are a wall


class Cubes(NamedTuple):
    """A run on cubes. slabs: GPUs per sample; samples: of a replica."""

    edge: Annotated[int, Slider("Edge", "Points along an edge of the cube", EDGES)] = 512
    slabs: Annotated[int, Slider("GPUs per sample", "Slabs into which each cube is cut", SLABS)] = 4
    gpus: Annotated[int, Slider("GPUs", "In nodes of 4", GPUS)] = 512
    samples: Annotated[int, Slider("Samples at once", AT_ONCE, SAMPLES)] = 1
    tier: Annotated[str, Dropdown("Cubes are in", "Where samples are read from", TIERS)] = ""


@on_bench(
    Cubes(),
    "hybrid_memory",
    "hybrid_terms",
    "hybrid_scaling",
    fine="It fits, and computation dominates.",
)
def the_cubes(setting: Cubes) -> View:
    """Look for which part of the bar grows when each cube is cut finer, and which does not shrink."""
    held = {}
    for slabs in SLABS:
        name = f"{'yours: ' * (slabs == setting.slabs)}{count(slabs, 'GPU')} per sample"
        held[name] = held_by(step_of(setting._replace(slabs=slabs)))
    more = setting._replace(gpus=2 * setting.gpus)
    bars = {"yours": setting, "twice: cut finer": finer(setting), "twice: more samples": more}
    charts = {
        "hybrid_memory": memory_state(held, float(cosmos().machine.device.memory)),
        "hybrid_terms": terms_state({name: parts_of(step_of(c)) for name, c in bars.items()}),
        "hybrid_scaling": scaling_view(setting),
    }
    return View(cubes_words(setting), cubes_wall(setting), charts)


@lru_cache(maxsize=64)
def cosmos(edge: int = 512) -> Experiment:
    """Return the run of Oyama et al. 2019 with cubes of that edge: a sample on four GPUs, 512 GPUs."""
    many = UNIVERSES * (512 // edge) ** 3
    files = {"samples": many, "files": many, "bytes": many * 4 * edge**3 * POINT}
    return Experiment(
        model={"name": "cosmoflow-512", "image": edge},
        dataset={"name": "cosmoflow", **files, "sample_shape": [4, edge, edge, edge]},
        machine={"name": "lassen", "nodes": MOST // PER_NODE},
        strategy={"nodes": 512 // PER_NODE, "spatial": 4, "batch": 1, "optimizer": "adam"},
    )


@cache
def slowness() -> float:
    """Return the compute time of the published run over that of the roofline."""
    return scale_of(published_step(), lambda scale: float(breakdown(cosmos(), scale).step_time))


def published_step() -> float:
    """Return the seconds of a step of the published run: its FLOP over its FLOP/s."""
    row, run = results()[PUBLISHED], cosmos()
    rate = float(row["value"]) * UNITS.get(row["unit"], 1e15)
    return float(run.global_batch * run.model.train_flop / rate)


@lru_cache(maxsize=64)
def step_of(setting: Cubes) -> Breakdown:
    """Return the prediction of what the controls describe."""
    changes = {
        "strategy.nodes": setting.gpus // PER_NODE,
        "strategy.spatial": setting.slabs,
        "strategy.batch": setting.samples,
        "storage.tier": setting.tier,
    }
    return breakdown(cosmos(setting.edge).set(changes), slowness())


def finer(setting: Cubes, times: int = 2) -> Cubes:
    """Return the same samples per step on `times` the GPUs."""
    return setting._replace(gpus=times * setting.gpus, slabs=times * setting.slabs)


def scaling_view(setting: Cubes) -> State:
    """Return the chart "hybrid_scaling": cubes as they are cut, and cubes cut ever finer; what fits."""
    one = setting._replace(gpus=setting.gpus // setting.slabs, slabs=1)
    ways = {
        "weak": [setting._replace(gpus=p) for p in (*GPUS, MOST)],
        "strong": [finer(one, slabs) for slabs in SLABS],
    }
    curves, gains = {}, []
    for name, settings in ways.items():
        fitting = [c for c in settings if PER_NODE <= c.gpus <= MOST and step_of(c).fits]
        x = np.array([float(c.gpus) for c in fitting])
        y = np.array([float(step_of(c).throughput) for c in fitting])
        curves[name] = (x, y)
        if len(x) > 1:
            more, gain = f"{x[-1] / x[0]:,.0f}", f"{y[-1] / y[0]:,.3g}"
            gains.append(f"{name}: {more} times the GPUs are {gain} times as fast")
    gpus = np.union1d(curves["weak"][0], curves["strong"][0])
    curves["ideal"] = (gpus, gpus * float(step_of(setting).throughput) / setting.gpus)
    rate = float(cosmos().global_batch) / published_step()
    words = f"Oyama et al. 2019: 512 GPUs, {rate:,.0f} samples per second"
    published = columns([{"x": 512, "y": rate, "words": words}] * (setting.edge == 512))
    weak = {"weak": curves["weak"]}
    now = value_at(weak, setting.gpus, lambda y: f"{format_plain(y)} per second")
    data = {**line_columns(curves), "published": published, "now": now}
    return data, f"{'; '.join(gains) or 'Nothing fits'}."


def cubes_words(setting: Cubes) -> str:
    """Say how long a step takes and how much memory it needs."""
    step, replicas = step_of(setting), setting.gpus // setting.slabs
    read = f" Reading a batch takes {seconds(step.input_time)} meanwhile." if setting.tier else ""
    return (
        f"<b>{replicas:,} × {count(setting.slabs, 'GPU')}, {replicas * setting.samples:,} samples per step:"
        f" {seconds(step.step_time)}.</b> A GPU needs {size(step.memory_total)}; halos expose"
        f" {seconds(step.exposed.get('halo', 0.0))}, gradients {seconds(step.exposed['data'])};"
        f" {float(step.compute / step.step_time):.0%} of the time is computation.{read}"
    )


def cubes_wall(setting: Cubes) -> str:
    """Say which limit the choice meets first, or nothing."""
    step = step_of(setting)
    run, parts, whole = step.experiment, parts_of(step), float(step.step_time)
    halos, gradients = parts["halos"], parts["gradients"]
    if not step.fits:
        enough = [s for s in SLABS if step_of(setting._replace(slabs=s)).fits]
        way = f"it takes {enough[0]} GPUs per sample" if enough else "take fewer samples at once"
        return (
            f"Memory: a GPU needs {size(step.memory_total)} and has {size(run.machine.device.memory)};"
            f" {way}. More replicas would not help: each processes whole cubes."
        )
    if parts["input stall"] > NOTABLE * whole:
        return (
            f"Input: a batch is {size(run.global_batch * run.dataset.sample_bytes)} and takes"
            f" {seconds(step.input_time)} to read; every GPU is idle for {seconds(step.input_stall)} per step."
        )
    if halos > NOTABLE * whole:
        return (
            f"The surface: halos take {seconds(halos)}, {halos / whole:.0%} of the step. A slab half as thick"
            " computes half as much but exchanges just as much."
        )
    if gradients > SUMMED * whole:
        return (
            f"The allreduce of the gradients: {seconds(gradients)}, {gradients / whole:.0%} of the step. Finer slabs"
            " shrink the computation, but every GPU still has all weights."
        )
    return ""


def memory_alone() -> float:
    """Return the GB that one of the published samples takes on one GPU."""
    return float(step_of(Cubes(slabs=1)).memory_total) / 1e9
