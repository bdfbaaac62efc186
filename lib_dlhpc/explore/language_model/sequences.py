"""Long sequences: context parallelism by ring or by heads, and how much of its exchange a step waits for."""

from functools import lru_cache
from typing import Annotated, NamedTuple

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.blocks.lines import Curves
from lib_dlhpc.explore.language_model.charts import context_state
from lib_dlhpc.explore.language_model.layout import Recompute, wall
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show

MODEL, GPUS, PER_NODE, TOKENS = "llama3-8b", 64, 8, 2**23  # tokens of a step
LENGTHS = tuple(2**k for k in range(13, 18))
EXCHANGES = {"ring": "ring", "heads (Ulysses)": "heads"}
HIDDEN = 0.05  # of a step, from which an exchange is said not to be hidden
NICS = {"a NIC for each GPU": 8, "one NIC per node": 1}
Nics = Annotated[int, Dropdown("Network", "400 Gb/s each", NICS)]


class Setting(NamedTuple):
    """A sequence over ranks. exchange, recompute: as in the strategy; nics: 400 Gb/s each."""

    sequence: Annotated[int, Slider("Sequence", "Tokens", LENGTHS)] = 2**15
    context: Annotated[int, Slider("Context", "Ranks of a sequence", (2, 4, 8, 16, 32))] = 8
    exchange: Annotated[str, Dropdown("Exchange", "Of keys and values", EXCHANGES)] = "ring"
    nics: Nics = 8
    recompute: Recompute = "none"


class Found(NamedTuple):
    """What is kept of a prediction. exposed: share of a step that waits for keys and values; held: B of a GPU."""

    exposed: float
    seconds: float
    held: float
    mfu: float
    wall: str


@on_bench(Setting(), "llm_context", fine="It fits.")
def the_sequence(setting: Setting) -> View:
    """Look for how fast the ring's line falls: blocks of longer sequences take longer to compute than to pass on."""
    own = predicted(setting)
    chart = context_state(curves(setting), setting.sequence, setting.exchange)
    words = (
        f"<b>{own.exposed:.2%} of the step waits for keys and values.</b> Each rank has"
        f" {setting.sequence // setting.context:,} tokens of a sequence. A step of {TOKENS:,} tokens takes"
        f" {show(own.seconds, 's')}, MFU {own.mfu:.0%}; a GPU holds {show(own.held, 'B')}."
    )
    hidden = "" if own.exposed < HIDDEN else "It fits, but the exchange is not hidden."
    return View(words, own.wall, {"llm_context": chart}, hidden)


def curves(setting: Setting) -> Curves:
    """Return the exposed share by the length of a sequence, for each exchange that is possible."""
    found = {}
    for exchange in EXCHANGES.values():
        own = setting._replace(exchange=exchange)
        try:
            shares = [predicted(own._replace(sequence=each)).exposed for each in LENGTHS]
        except SpecError:  # heads that cannot be divided
            continue
        found[exchange] = (np.array(LENGTHS), np.array(shares))
    return found


@lru_cache(maxsize=512)
def predicted(setting: Setting) -> Found:
    """Return what is shown of a prediction; raises SpecError where heads cannot be divided."""
    step = predict(experiment(setting))
    seconds, waits = float(step.step_time), float(step.exposed["context"])
    return Found(
        waits / seconds, seconds, float(step.memory_total), float(step.utilization), wall(step)
    )


def experiment(setting: Setting) -> Experiment:
    """Return the run: Llama 3 8B on 64 H100, the same tokens in a step however long its sequences are."""
    each = TOKENS // setting.sequence * setting.context // GPUS
    strategy = {
        "nodes": GPUS // PER_NODE,
        "context": setting.context,
        "context_exchange": setting.exchange,
        "batch": each,
        "microbatches": each,
        "zero": 1,
        "recompute": setting.recompute,
        "precision": "bf16",
        "optimizer": "adam",
    }
    return Experiment(
        model={"name": MODEL, "sequence": setting.sequence},
        machine={"name": "h100-pod", "nics": setting.nics},
        dataset="webtext",
        strategy=strategy,
    )
