"""What to do next, with a button that does it, and how far the prediction can be trusted."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from lib_dlhpc.explore.blocks.plain_text import Readable
from lib_dlhpc.explore.explorer.choice import Choice, experiment_of, written
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.prediction.advice import Advice, advise
from lib_dlhpc.prediction.forget import forget
from lib_dlhpc.prediction.replays import Replay
from lib_dlhpc.spec.experiment import dumps

HERE = Path(__file__).parent / "static"
GOOD, FAIR = 0.1, 0.25  # error against the publication up to which a prediction is good, or fair
MOST = 64  # choices whose advice is kept: who undoes, pins or returns to a preset has it at once
KNOWN: dict[str, Advice] = {}


class Plan(Readable, anywidget.AnyWidget):
    """The advice with its button. apply: sets the fields of an advice.

    state: words; changes, the fields to set; answered, the newest moves (of the panel, of the bar) that it follows;
    stale, whether another is looked for. asked: [serial, changes] of the newest click. What is shown is what is
    applied: a click brings the changes that were shown, and there is no button while the advice is of other settings.
    """

    _esm = HERE / "plan.js"

    state = traitlets.Dict().tag(sync=True)
    asked: traitlets.List = traitlets.List().tag(sync=True)

    def __init__(self, apply: Callable[[Mapping[str, Any]], None]) -> None:
        super().__init__()
        self._show(Advice("Looking for what helps ...", "", {}), (0, 0))
        self.observe(lambda event: apply(event["new"][1]), "asked")

    def wait(self) -> None:
        """Say that the advice is of other settings."""
        self.state = {**self.state, "stale": True}

    def follow(self, prediction: Breakdown, answered: tuple[int, int], choice: Choice) -> None:
        """Look for what helps this run most: tens of predictions, so once the controls rest.

        choice: what is predicted; a click on Apply changes it, so that what is promised is what it gives.
        """
        self._show(_advice(prediction, choice), answered)
        forget()
        predict(prediction.experiment)  # so that the next move finds what it shares with this run

    def _show(self, advice: Advice, answered: tuple[int, int]) -> None:
        self.state = {
            "words": advice.words,
            "changes": advice.changes,
            "answered": list(answered),
            "stale": False,
        }

    def plain_text(self) -> str:
        """Return the advice."""
        return str(self.state["words"])


def _advice(p: Breakdown, choice: Choice) -> Advice:
    """Return the advice for a choice: the one that is known, unless its machine can be measured anew meanwhile."""
    key = "" if p.experiment.machine.measured else f"{written(choice)}\n{dumps(p.experiment)}"
    if key not in KNOWN:
        advice = advise(p, lambda changes: experiment_of(choice.with_changes(changes)))
        if not key:
            return advice
        if len(KNOWN) == MOST:
            del KNOWN[next(iter(KNOWN))]
        KNOWN[key] = advice
    return KNOWN[key]


def trust(prediction: Breakdown, replay: Replay | None) -> tuple[str, str, str]:
    """Return how far a prediction can be trusted: short, in words, and "good", "fair", "poor" or "unknown".

    replay: the published run, where it is shown as it was published.
    """
    if replay is not None:
        error = float(prediction.time_to_train) / replay.published_time - 1
        level = "good" if abs(error) <= GOOD else "fair" if abs(error) <= FAIR else "poor"
        return f"{error:+z.1%}", "against the published time", level
    calibration = prediction.experiment.calibration
    if calibration.rate or calibration.compute_scale:
        return "calibrated", "on a measured rate; no published run of this", "fair"
    return "not checked", "catalog rates; no published run of this", "unknown"
