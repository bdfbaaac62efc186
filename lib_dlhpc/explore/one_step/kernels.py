"""A step of a language model on one GPU by class of operator: what fused kernels remove in bytes and launches."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

from lib_dlhpc.costs import Operators, by_operator
from lib_dlhpc.explore.blocks.bars import stacks
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.blocks.charts import State
from lib_dlhpc.explore.one_step.charts import LAUNCHES, OPERATORS
from lib_dlhpc.explore.one_step.machines import precision_of
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import read_device
from lib_dlhpc.spec.units import format_quantity as show

MODELS = {"GPT-2, 1.5 B": "gpt2-1.5b", "Llama 3.2, 1 B": "llama3.2-1b", "OPT, 125 M": "opt-125m"}
DEVICES = {"V100": "v100-sxm2-32gb", "A100": "a100-sxm-40gb", "H100": "h100-sxm-80gb"}
SEQUENCES, BATCHES = (256, 512, 1024, 2048, 4096), (1, 2, 4, 8)
APART, FUSED = "one kernel per layer", "fused"
ATTENTIONS = {"stores its scores": "off", "fused": "on"}
NEIGHBORS = {APART: False, "fused with neighbors": True}
OPTIMIZER = "adam"
EAGER, CHOSEN = "eager", "as chosen"


class Setting(NamedTuple):
    """A step on one GPU. attention: strategy.fused_attention; fused: neighbors share a kernel."""

    model: Annotated[str, Dropdown("Network", "What is trained, with Adam", MODELS)] = "gpt2-1.5b"
    device: Annotated[str, Dropdown("GPU", "In 16 bits", DEVICES)] = "h100-sxm-80gb"
    sequence: Annotated[int, Slider("Sequence", "Tokens of a sample", SEQUENCES)] = 1024
    batch: Annotated[int, Slider("Batch", "Sequences of a step", BATCHES)] = 4
    attention: Annotated[
        str, Dropdown("Attention", "Scores in memory, or on the chip", ATTENTIONS)
    ] = "off"
    fused: Annotated[
        bool, Dropdown("Other layers", "Norms, activations, dropout, sums", NEIGHBORS)
    ] = False


@on_bench(Setting(), "one_step_kernels", "one_step_traffic", fine="It fits.")
def step_by_kernels(setting: Setting) -> View:
    """Look for the class that loses most bytes, and whether it also takes most of the time."""
    eager, chosen = operators(eager_of(setting)), operators(setting)
    before, after = total(eager), total(chosen)
    instead = "as eager ones do"
    if setting != eager_of(setting):
        instead = f"instead of {show(before.moved, 'B')} by {before.kernels:,.0f} in {show(before.seconds, 's')}"
    return View(
        f"<b>A step takes {show(after.seconds, 's')}:</b> {after.kernels:,.0f} kernels move"
        f" {show(after.moved, 'B')}, {instead}. {shares_words(chosen)}",
        " ".join(predict(experiment(setting)).walls),
        {
            "one_step_kernels": state(eager, chosen, "s"),
            "one_step_traffic": state(eager, chosen, "B"),
        },
    )


@lru_cache(maxsize=128)
def _experiment(model: str, device: str, sequence: int, batch: int, attention: str) -> Experiment:
    return Experiment(
        model={"name": model, "sequence": sequence},
        dataset="webtext",
        machine={"name": "perlmutter", "device": device, "jitter": 0.0},
        strategy={
            "devices_per_node": 1,
            "batch": batch,
            "precision": precision_of(read_device(device)),
            "optimizer": OPTIMIZER,
            "fused_attention": attention,
        },
    )


def experiment(setting: Setting) -> Experiment:
    """Return the run on one GPU; fused neighbors are not part of an experiment."""
    return _experiment(*setting[:-1])


def eager_of(setting: Setting) -> Setting:
    """Return the setting with one kernel per layer, and scores in memory."""
    return setting._replace(attention="off", fused=False)


@lru_cache(maxsize=256)
def operators(setting: Setting) -> dict[str, Operators]:
    """Return the step by class of operator."""
    own = experiment(setting)
    strategy = own.strategy
    return by_operator(
        own.model,
        own.machine.device,
        setting.batch,
        strategy.precision,
        OPTIMIZER,
        fused=setting.fused,
    )


def total(found: dict[str, Operators]) -> Operators:
    """Return the whole step; its seconds with those of launches."""
    summed = Operators(*map(sum, zip(*found.values(), strict=True)))
    return summed._replace(seconds=summed.seconds + summed.launches)


def flop_share(setting: Setting) -> float:
    """Return the share of a step's FLOP that attention performs."""
    model = experiment(setting).model
    every = sum(layer.forward_flop for layer in model.layers)
    return sum(layer.forward_flop for layer in model.layers if "attention" in layer.kind) / every


def time_share(setting: Setting, name: str = "attention") -> float:
    """Return the share of a step's time that a class takes, without its launches, or all launches."""
    found = operators(setting)
    seconds = total(found).launches if name == LAUNCHES else found[name].seconds
    return seconds / total(found).seconds


def times_as_fast(setting: Setting, **changes: Any) -> float:
    """Return how many times as fast a step is with some settings changed."""
    now, then = (total(operators(each)).seconds for each in (setting, setting._replace(**changes)))
    return now / then


def state(eager: dict[str, Operators], chosen: dict[str, Operators], unit: str) -> State:
    """Return the columns of a chart, "one_step_kernels" in s or "one_step_traffic" in B."""
    rows = {EAGER: parts(eager, unit), CHOSEN: parts(chosen, unit)}
    sums = [show(sum(parts.values()), unit) for parts in rows.values()]
    most = max(rows[CHOSEN], key=lambda name: rows[CHOSEN][name])
    whole = sum(rows[CHOSEN].values())
    return stacks(rows, OPERATORS, unit), (
        f"Eager {sums[0]}, as chosen {sums[1]}; most of it is {most}, {rows[CHOSEN][most] / whole:.0%}."
    )


def parts(found: dict[str, Operators], unit: str) -> dict[str, float]:
    """Return by class the seconds, and those of all launches, or the bytes."""
    if unit == "B":
        return {name: each.moved for name, each in found.items()}
    seconds = {name: each.seconds for name, each in found.items()}
    return seconds | {LAUNCHES: sum(each.launches for each in found.values())}


def shares_words(found: dict[str, Operators]) -> str:
    """Say the share of each class in the time."""
    each = parts(found, "s")
    whole = sum(each.values())
    named = sorted(each, key=lambda name: -each[name])
    return "Of the time: " + ", ".join(f"{name} {each[name] / whole:.0%}" for name in named) + "."
