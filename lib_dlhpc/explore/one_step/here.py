"""One step for real, on two ranks of this machine: predicted, simulated and measured, term by term."""

from functools import lru_cache
from typing import Annotated, NamedTuple

from lib_dlhpc.comparison.placed import placed
from lib_dlhpc.explore.blocks.bench import Bench, Dropdown, Slider, View
from lib_dlhpc.explore.compare.page import RunHere
from lib_dlhpc.explore.one_step.machines import Mine
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import Experiment

SECONDS = 3.0  # of steps, about
MODELS = {"dense layers": "mlp-digits", "convolutions": "cnn-digits"}
BATCHES = (8, 16, 32, 64, 128, 256)
RANKS = (1, 2)
UNKNOWN = (
    "<b>Not measured on this page yet:</b> predictions use your own earlier calibration, if there is one, or"
    " the catalog's laptop. Run once like this, then press Measure, and run again."
)
KNOWN = "<b>Predictions are for this machine,</b> as measured on this page."


class Setting(NamedTuple):
    """A run. batch: of each rank."""

    model: Annotated[str, Dropdown("Network", "It learns digits", MODELS)] = "mlp-digits"
    batch: Annotated[int, Slider("Batch", "Samples on each rank", BATCHES)] = 8
    ranks: Annotated[int, Slider("Ranks", "One process each", RANKS)] = 2


def run_one_step(mine: Mine) -> Bench[Setting]:
    """Return the experiment; it uses the measured machine as soon as there is one."""
    here = RunHere(None, mine.own, SECONDS)

    def view(setting: Setting) -> View:
        if here.machine is not mine.own:
            here.machine, here.experiment = mine.own, None  # the last run was predicted for another
        here.follow(experiment(setting))
        return View(UNKNOWN if mine.own is None else KNOWN)

    look = "the term that is off most, and whether the measured step lies inside the band."
    bench = Bench(Setting(), view, [here.widget], look=look)
    mine.observe(lambda _: bench.show(), "machine")
    return bench


@lru_cache(maxsize=64)
def experiment(setting: Setting) -> Experiment:
    """Return the run on this machine."""
    return Experiment(
        model=setting.model,
        dataset="digits",
        machine="laptop",
        strategy={"devices_per_node": setting.ranks, "batch": setting.batch},
    )


def exchange_share(setting: Setting, mine: Mine) -> float:
    """Return the share of a predicted step that the allreduce of gradients takes, on the measured machine."""
    here = placed(experiment(setting), None, mine.machine)
    terms = predict(here.experiment).terms
    return float(terms["exposed communication"] / sum(terms.values()))
