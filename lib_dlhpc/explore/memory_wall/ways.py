"""Ways around the memory wall: the same step on the same GPUs, each way a point of time against memory."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import ipywidgets

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.bench import Bench, Dropdown, Slider, View, amount
from lib_dlhpc.explore.blocks.panels import problem_html, table_html
from lib_dlhpc.explore.blocks.roofline import ROOFLINE
from lib_dlhpc.explore.memory_wall.charts import Way, ways_state
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.limits.fit import Search
from lib_dlhpc.sentences import sentences
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import read_device
from lib_dlhpc.spec.units import format_quantity as show

say = sentences(__file__)

PER_NODE = 8
MODELS = {"GPT-2, 1.5 billion parameters": "gpt2-1.5b", "GPT, 22 billion parameters": "gpt-22b"}
A100 = tuple(float(read_device(f"a100-sxm-{n}gb").memory) for n in (40, 80))  # as in experiment 1
MEMORIES = (8e9, 16e9, 24e9, *A100, 160e9)
NETWORKS = {
    "one 25 Gb/s Ethernet": ("ethernet-25g", 1),
    "two 25 Gb/s Ethernet": ("ethernet-25g", 2),
    "one 100 Gb/s Ethernet": ("ethernet-100g", 1),
    "eight 200 Gb/s InfiniBand": ("ib-hdr", 8),
}
SEARCHED, LISTED = 150, 5  # predictions of a search, and ways that it lists
PATIENCE = 5.0  # s after which a search ends: the page does not respond meanwhile


class Setting(NamedTuple):
    """A step to be fitted. batch: samples of all GPUs together; memory: B of a GPU."""

    model: Annotated[str, Dropdown("Network", "What is trained", MODELS)] = "gpt2-1.5b"
    gpus: Annotated[int, Slider("GPUs", "In nodes of 8", (8, 16, 32, 64))] = 16
    batch: Annotated[
        int, Slider("Batch", "Samples of a step, all GPUs together", (64, 128, 256))
    ] = 64
    memory: Annotated[float, Slider("GPU memory", "The wall", MEMORIES, amount("B"))] = A100[0]
    network: Annotated[
        str, Dropdown("Between nodes", "Inside a node it is NVLink", NETWORKS.keys())
    ] = "two 25 Gb/s Ethernet"


def four_ways() -> Bench[Setting]:
    """Return the experiment: all ways in one chart with the wall, and a search for the fastest that fits."""
    found = ipywidgets.HTML()
    button = ipywidgets.Button(
        description="Search",
        button_style="primary",
        layout={"width": "auto", "align_self": "flex-start"},
        tooltip="Predicts single ways and pairs of them",
    )
    look = "which points lie left of the wall, and which of them is the lowest; then a slower network: which rise?"
    fine = "It fits as it is: nothing has to be done."
    bench = Bench(Setting(), ways_view, ["memory_ways", button, found], fine, look)
    button.on_click(lambda _: found.set_trait("value", search_html(bench.setting)))
    for control in bench.controls.values():
        control.observe(lambda _: found.set_trait("value", ""), "value")
    return bench


def ways_view(setting: Setting) -> View:
    """Return what each way needs, and what the fastest and the slowest that fit cost."""
    plain, inside = ways(setting)[0], fitting(setting)
    words = "None of these ways alone fits."
    if inside:
        best, last = inside[0], inside[-1]
        words = (
            f"The fastest that fits: {best.name}, {show(best.memory, 'B')}, {show(best.seconds, 's')},"
            f" {best.seconds / plain.seconds:.2f} times as long. The slowest that fits: {last.name},"
            f" {last.seconds / plain.seconds:.2f} times."
        )
    return View(
        f"<b>As it is: {show(plain.memory, 'B')} per GPU, {show(plain.seconds, 's')} per step.</b> {words}",
        ways_wall(setting),
        {"memory_ways": ways_state(ways(setting), setting.memory, say.words)},
    )


def ways_wall(setting: Setting) -> str:
    """Say why the run does not fit as it is, or nothing where it does."""
    plain = ways(setting)[0]
    if plain.memory <= setting.memory:
        return ""
    terms = plain.prediction.memory
    most = max(terms, key=lambda name: float(terms[name]))
    inside = len(fitting(setting))
    help_ = f"{inside} of the ways below fit" if inside else "no single way below fits: search"
    return (
        f"Memory: a GPU would need {show(plain.memory, 'B')} and has {show(setting.memory, 'B')}. The largest"
        f" term is {most}, {show(float(terms[most]), 'B')}; {help_}."
    )


def experiment(setting: Setting, **strategy: Any) -> Experiment:
    """Return the run; a replica of several GPUs takes the samples of all of them. Raises SpecError."""
    split = strategy.get("tensor", 1) * strategy.get("pipeline", 1)
    network, nics = NETWORKS[setting.network]
    fixed = {"nodes": setting.gpus // PER_NODE, "batch": setting.batch * split // setting.gpus}
    machine = {
        "name": "selene",
        "device": {**ROOFLINE, "memory": setting.memory},
        "inter_node": network,
        "nics": nics,
        "jitter": 0.0,
    }
    return Experiment(
        model={"name": setting.model},
        dataset="webtext",
        machine=machine,
        storage={"tier": ""},
        strategy={**fixed, "precision": "bf16", "optimizer": "adam", **strategy},
    )


def _tried(setting: Setting) -> list[tuple[str, str, dict[str, Any]]]:
    own, stages = setting.batch // setting.gpus, min(8, setting.gpus)
    piped = {"pipeline": stages, "microbatches": own * stages}
    return [
        ("as it is", "as it is", {}),
        ("recompute scores", "recompute", {"recompute": "selective"}),
        ("recompute all", "recompute", {"recompute": "full"}),
        ("accumulate", "split", {"microbatches": own}),
        ("ZeRO 1", "shard", {"zero": 1}),
        ("ZeRO 2", "shard", {"zero": 2}),
        ("ZeRO 3", "shard", {"zero": 3}),
        ("tensor", "split", {"tensor": PER_NODE, "sequence_parallel": True}),
        ("pipeline", "split", piped),
        ("offload activations", "offload", {"offload": "activations"}),
        ("offload all", "offload", {"offload": "all"}),
        ("ZeRO 3 + recompute all", "combined", {"zero": 3, "recompute": "full"}),
        ("pipeline + ZeRO 1", "combined", {**piped, "zero": 1}),
    ]


@lru_cache(maxsize=64)
def ways(setting: Setting) -> tuple[Way, ...]:
    """Return all ways, predicted; those that the network does not allow are left out."""
    found = []
    for name, kind, changes in _tried(setting):
        try:
            own = predict(experiment(setting, **changes))
        except SpecError:
            continue
        found.append(Way(name, kind, float(own.memory_total), float(own.step_time), own))
    return tuple(found)


def way(setting: Setting, name: str) -> Way:
    """Return one of the ways by its name."""
    (found,) = (each for each in ways(setting) if each.name == name)
    return found


def fastest(setting: Setting, names: tuple[str, ...]) -> str:
    """Return which of these ways is the fastest of those that fit."""
    return next(each.name for each in fitting(setting) if each.name in names)


def sent(zero: int, microbatches: int) -> float:
    """Return the s of a step in which bytes of gradients and weights are on their way between replicas.

    In proportion to the bytes: the same links carry them all.
    """
    changes = {"zero": zero, "microbatches": microbatches}
    return float(predict(experiment(Setting(), **changes)).communication.bandwidth)


def fitting(setting: Setting) -> list[Way]:
    """Return the ways that fit, the fastest first."""
    inside = [each for each in ways(setting) if each.memory <= setting.memory]
    return sorted(inside, key=lambda each: each.seconds)


def search_html(setting: Setting) -> str:
    """Return the fastest ways to fit that the library finds, as a table."""
    search = Search(experiment(setting))
    search.run(SEARCHED, PATIENCE)
    found = search.ordered()
    if not found:
        return problem_html(f"Nothing fits among {search.tried} ways tried: take more GPUs.")
    lines = [["the fastest that fit, one way or two at once", "memory of a GPU", "step"]]
    for each in found[:LISTED]:
        size, took = float(each.prediction.memory_total), float(each.prediction.step_time)
        lines.append([each.words, show(size, "B"), show(took, "s")])
    return table_html(lines)
