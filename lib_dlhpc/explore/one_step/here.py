"""One step for real, on two ranks of this machine: predicted, simulated and measured, term by term.

run_one_step(mine)   the experiment: network, batch, ranks; Run this here
"""

import threading
from functools import lru_cache
from typing import NamedTuple

import ipywidgets

from lib_dlhpc.comparison.comparison import Begin, start_beside
from lib_dlhpc.comparison.placed import placed
from lib_dlhpc.explore.blocks.runner import Thread
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, verdict_html, workbench
from lib_dlhpc.explore.compare.page import RunHere
from lib_dlhpc.explore.one_step.machines import Mine
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import Experiment, read_experiment

SECONDS = 3.0  # of steps, about
MODELS = {"dense layers": "mlp-digits", "convolutions": "cnn-digits"}
BATCHES = (8, 16, 32, 64, 128, 256)
RANKS = (1, 2)
EXCHANGE = "exposed communication"


class Setting(NamedTuple):
    """What the controls say. batch: of each rank."""

    model: str = "mlp-digits"
    batch: int = 8
    ranks: int = 2


def run_one_step(
    mine: Mine, begin: Begin = start_beside, thread: Thread = threading.Thread
) -> ipywidgets.Box:
    """Return the experiment; it uses the measured machine as soon as there is one."""
    controls = {
        "model": dropdown("Network", "It learns digits", MODELS.items(), "mlp-digits"),
        "batch": slider("Batch", "Samples on each rank", [(str(n), n) for n in BATCHES], 8),
        "ranks": slider("Ranks", "One process each", [(str(n), n) for n in RANKS], 2),
    }
    here = RunHere(None, mine.own, SECONDS, begin, thread)
    known = ipywidgets.HTML()

    def update() -> None:
        known.value = verdict_html(known_words(mine))
        if here.machine is not mine.own:
            here.machine, here.experiment = mine.own, None  # the last run was predicted for another
        here.follow(experiment(Setting(**{name: c.value for name, c in controls.items()})))

    mine.observe(lambda _: update(), "machine")
    note = "the term that is off most, and whether the measured step lies inside the band."
    return workbench(controls, [known, here.widget], update, note)


@lru_cache(maxsize=64)
def experiment(setting: Setting) -> Experiment:
    """Return the run on this machine."""
    return read_experiment(
        {
            "model": {"name": setting.model},
            "dataset": {"name": "digits"},
            "machine": {"name": "laptop"},
            "strategy": {"devices_per_node": setting.ranks, "batch": setting.batch},
        }
    )


def known_words(mine: Mine) -> str:
    """Say which machine is predicted."""
    if mine.own is None:
        return (
            "<b>Not measured on this page yet:</b> predictions are for your own earlier calibration, if there is"
            " one, or for the catalog's laptop. Run it so once, then Measure, and run it again."
        )
    return "<b>Predictions are for this machine,</b> as measured on this page."


def exchange_share(setting: Setting, mine: Mine) -> float:
    """Return the share of a predicted step that the allreduce of gradients takes, on the measured machine."""
    here = placed(experiment(setting), None, mine.machine)
    terms = {name: float(seconds) for name, seconds in predict(here.experiment).terms.items()}
    return terms[EXCHANGE] / sum(terms.values())
