"""Experts over ranks: DeepSeek-V3 on 2,048 H800, where its tokens travel, and what an uneven router costs."""

from functools import lru_cache
from typing import Annotated, NamedTuple

from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.language_model.charts import causes, steps_state
from lib_dlhpc.explore.language_model.layout import Recompute, wall
from lib_dlhpc.explore.language_model.sequences import Nics
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import format_quantity as show

MODEL, GPUS, SEQUENCES, TOKENS = "deepseek-v3", 2_048, 15_360, 4_096
# DeepSeek-AI 2024, arXiv:2412.19437: GPU hours of a trillion tokens (section 1), sequences of a step (section 4.2).
HOURS_EACH = 180_000
MATMULS = {"bf16": "bf16", "linear layers in fp8": "fp8"}


class Setting(NamedTuple):
    """A layout. busiest: tokens of the busiest rank over the mean; matmuls: their precision."""

    experts: Annotated[
        int, Slider("Expert ranks", "That share the experts of a layer", (8, 16, 32, 64))
    ] = 64
    pipeline: Annotated[int, Slider("Pipeline", "Stages", (8, 16, 32))] = 16
    busiest: Annotated[
        float, Slider("Busiest rank", "Its tokens over the mean", (1.0, 1.2, 1.5, 2.0))
    ] = 1.0
    nics: Nics = 8
    matmuls: Annotated[str, Dropdown("Matmuls", "Their precision", MATMULS)] = "bf16"
    recompute: Recompute = "full"


@on_bench(Setting(), "llm_step", fine="It fits.")
def the_experts(setting: Setting) -> View:
    """Look for the all-to-all with 8 expert ranks, all in one node, and with 64, in eight; then why 8 are not taken."""
    own = predicted(setting)
    parts = causes(own)
    alone = computed(parts)
    runs = {"yours": parts, "only computed": alone}
    said = {name: show(sum(each.values()), "s") for name, each in runs.items()}
    chart = steps_state(runs, said, (published_step(), "derived from published GPU hours"))
    words = (
        f"<b>{share(setting):.0%} of the step is the experts' all-to-all.</b> A step takes"
        f" {show(float(own.step_time), 's')}; it would take {said['only computed']} if nobody waited for anything but"
        f" arithmetic; DeepSeek's own took {show(published_step(), 's')}, by the published"
        f" GPU hours, in fp8 with light recomputation. A GPU holds"
        f" {show(float(own.memory_total), 'B')}."
    )
    slower = float(own.step_time) / published_step()
    fine = f"It fits, but takes {slower:.2g} times as long as published." if slower > 1.1 else ""
    return View(words, wall(own), {"llm_step": chart}, fine)


def computed(parts: dict[str, float]) -> dict[str, float]:
    """Return the causes without exchanges and bubble."""
    kept = ("forward", "backward", "recomputation", "update", "waiting for the slowest")
    return {cause: seconds if cause in kept else 0.0 for cause, seconds in parts.items()}


def share(setting: Setting) -> float:
    """Return the share of a step that is the experts' all-to-all."""
    own = predicted(setting)
    return float(own.exposed["experts"] / own.step_time)


def published_step() -> float:
    """Return the s of a step: GPU hours of a trillion tokens over GPUs, times the tokens of a step."""
    return HOURS_EACH * 3600 / GPUS * SEQUENCES * TOKENS / 1e12


def replicas(setting: Setting) -> int:
    """Return how many GPUs hold the same experts."""
    return GPUS // setting.pipeline // setting.experts


def with_zero1(setting: Setting) -> Breakdown:
    """Return the prediction of a layout in which replicas shard the optimizer state of what they have in common."""
    return predict(experiment(setting).set({"strategy.zero": 1}))


@lru_cache(maxsize=128)
def predicted(setting: Setting) -> Breakdown:
    """Return the prediction of a layout."""
    return predict(experiment(setting))


def experiment(setting: Setting) -> Experiment:
    """Return the run: 15,360 sequences of 4,096 tokens per step, a sequence a microbatch."""
    each = SEQUENCES * setting.pipeline // GPUS
    strategy = {
        "nodes": GPUS // 8,
        "experts": setting.experts,
        "expert_imbalance": setting.busiest,
        "pipeline": setting.pipeline,
        "batch": each,
        "microbatches": each,
        "recompute": setting.recompute,
        "precision": setting.matmuls,
        "optimizer": "adam",
    }
    machine = {"name": "h800-pod", "nics": setting.nics}
    tables = {"model": MODEL, "machine": machine, "dataset": "webtext", "strategy": strategy}
    return read_experiment(tables)
