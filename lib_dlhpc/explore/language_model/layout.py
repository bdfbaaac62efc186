"""One network on 16,384 GPUs: how it is divided, whether it fits, and its MFU."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.language_model.charts import causes, steps_state
from lib_dlhpc.explore.memory_wall.charts import memory_state
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.prediction.validation.published import published
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import DAY, count
from lib_dlhpc.spec.units import format_quantity as show

GPUS, SEQUENCES, LAYERS = 16_384, 2_048, 128  # embedding and output count as a layer each
PUBLISHED = "llama3-405b-16384-8192"  # TFLOP/s of a GPU
BAND = (0.38, 0.43)  # MFU, table 4 of Grattafiori et al. 2024
SCHEDULES = {"1F1B": "1f1b", "interleaved": "interleaved", "zero bubble": "zb-h1"}
STATES = {
    "nothing (DDP)": 0,
    "optimizer (ZeRO 1)": 1,
    "gradients too (ZeRO 2)": 2,
    "weights too (ZeRO 3, FSDP)": 3,
}
RECOMPUTES = {"nothing": "none", "all of a block": "full"}
Recompute = Annotated[str, Dropdown("Recomputed", "In the backward pass", RECOMPUTES)]


class Setting(NamedTuple):
    """A layout. zero, recompute: as in the strategy; interleaved chunks have one layer each."""

    tensor: Annotated[
        int, Slider("Tensor", "Ranks that split each layer, in a node", (1, 2, 4, 8))
    ] = 8
    pipeline: Annotated[int, Slider("Pipeline", "Stages", (1, 4, 8, 16, 32))] = 16
    context: Annotated[int, Slider("Context", "Ranks that split a sequence", (1, 2, 4, 8))] = 1
    zero: Annotated[int, Dropdown("Sharded", "Of the state, over replicas", STATES)] = 1
    schedule: Annotated[str, Dropdown("Schedule", "Of the pipeline", SCHEDULES)] = "interleaved"
    recompute: Recompute = "none"

    @property
    def replica(self) -> int:
        """GPUs that hold the network once."""
        return self.tensor * self.pipeline * self.context


ALONE = Setting(pipeline=1, zero=3)  # tensor parallelism in a node, FSDP between nodes


@on_bench(Setting(), "llm_step", "memory", fine="It fits.")
def the_layout(setting: Setting) -> View:
    """Look for which cause grows when you take something away from Llama 3's layout, and whether it still fits."""
    own, theirs = predicted(setting), predicted(Setting())
    runs = {"yours": causes(own), "Llama 3's": causes(theirs)}
    said = {"yours": short(own), "Llama 3's": short(theirs)}
    charts = {
        "llm_step": steps_state(runs, said, (published_step(), "derived from published TFLOP/s")),
        "memory": memory_state(
            {name: float(size) for name, size in own.memory.items()},
            float(own.experiment.machine.device.memory),
        ),
    }
    inside = BAND[0] <= round(float(own.utilization), 2) <= BAND[1]
    fine = "It fits, within the published 38 to 43%." if inside else "It fits, but is slow."
    return View(layout_words(setting), wall(own), charts, fine if own.fits else "")


@lru_cache(maxsize=128)
def predicted(setting: Setting) -> Breakdown:
    """Return the prediction of a layout; raises SpecError, in this lesson's words where there is nothing to compute."""
    if setting.replica * SEQUENCES < GPUS:
        raise SpecError(
            f"Batch: 16,384 GPUs in replicas of {setting.replica} are {GPUS // setting.replica:,} replicas, and a step"
            f" has {SEQUENCES:,} sequences. Make replicas larger: split the network, or its sequences, further."
        )
    return predict(experiment(setting))


def experiment(setting: Setting) -> Experiment:
    """Return the run: Llama 3 405B on 16,384 H100, 2,048 sequences of 8,192 tokens per step."""
    each = setting.replica * SEQUENCES // GPUS
    split: dict[str, Any] = setting._asdict() | {"batch": each, "microbatches": each}
    one = setting.pipeline == 1
    split["schedule"] = "1f1b" if one else setting.schedule
    split["chunks"] = LAYERS // setting.pipeline if split["schedule"] == "interleaved" else 1
    split |= {"sequence_parallel": setting.tensor > 1, "context_exchange": "ring"}
    return base().set({f"strategy.{name}": value for name, value in split.items()})


@lru_cache(maxsize=1)
def base() -> Experiment:
    """Return Llama 3's own run, its arithmetic scaled so that the published rate on 8,192 GPUs is met.

    Without checkpoints: the published rates are those of steps.
    """
    run = read_experiment(catalog.read("presets", "llama3-405b")["experiment"])
    without = {"checkpoint_interval": 0.0, "checkpoint_writers": "first"}
    return run.set({f"run.{name}": value for name, value in without.items()} | {"storage.tier": ""})


def published_step() -> float:
    """Return the s of a step, derived from the published FLOP/s by the FLOP that this library counts."""
    flop = float(base().model.train_flop) * SEQUENCES / GPUS
    return flop / (float(published(PUBLISHED)["value"]) * 1e12)


def short(step: Breakdown) -> str:
    """Return time and MFU of a step."""
    return f"{show(float(step.step_time), 's')}, MFU {float(step.utilization):.0%}"


def layout_words(setting: Setting) -> str:
    """Say how fast a layout is, and how long all 15.6 T tokens would take."""
    own = predicted(setting)
    replicas, each = GPUS // setting.replica, setting.replica * SEQUENCES // GPUS
    return (
        f"<b>{float(own.model_rate) / 1e12:.0f} TFLOP/s per GPU, MFU {float(own.utilization):.1%}.</b>"
        f" {replicas:,} replicas of {setting.replica} GPUs, {count(each, 'sequence')} each. A step takes"
        f" {show(float(own.step_time), 's')}, all 15.6 T tokens {float(own.time_to_train) / DAY:.0f} days."
    )


def wall(step: Breakdown) -> str:
    """Say which limit a step breaks, or nothing."""
    return " ".join(step.walls) if not step.fits else ""
