"""What to do next, with a button that does it, and how far the prediction can be trusted."""

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

import ipywidgets

from lib_dlhpc.explore.blocks.plain_text import Column, Line
from lib_dlhpc.prediction import Breakdown
from lib_dlhpc.prediction.advice import Advice, advise
from lib_dlhpc.prediction.replays import Replay

GOOD, FAIR = 0.1, 0.25  # error against the publication up to which a prediction is good, or fair


class Plan:
    """The advice with its button. apply: sets the fields of an advice."""

    def __init__(self, apply: Callable[[Mapping[str, Any]], None]) -> None:
        self.words = Line()
        self.button = ipywidgets.Button(description="Apply", button_style="primary")
        self.card = Column([self.words, self.button])
        self.card.add_class("dl-say")
        self.button.on_click(lambda _: apply(self.advice.changes))
        self._show(Advice("Looking for what helps ...", "", {}))

    def follow(self, prediction: Breakdown) -> None:
        """Look for what helps this run most: tens of predictions, so once the controls rest."""
        self._show(advise(prediction))

    def _show(self, advice: Advice) -> None:
        self.advice, fields = advice, ", ".join(advice.changes)
        self.words.value = f'<p role="status">{escape(advice.words)}</p>'
        self.button.layout.display = "" if fields else "none"
        self.button.tooltip = f"Sets {fields}" if fields else ""


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
