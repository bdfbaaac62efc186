"""What to do next, with a button that does it, and how far the prediction can be trusted."""

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from lib_dlhpc.explore.blocks.plain_text import Readable
from lib_dlhpc.explore.explorer.choice import Choice, experiment_of, written
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.prediction.changes.advice import Advice, searched
from lib_dlhpc.prediction.clear_caches import forget
from lib_dlhpc.prediction.validation.replays import Replay
from lib_dlhpc.prediction.validation.trust import caveat_of, errors_of, is_calibrated, is_ideal
from lib_dlhpc.spec.experiment import dumps

Search = Generator[None, None, Advice]
HERE = Path(__file__).parent / "static"
GOOD, FAIR = 0.1, 0.25  # error against the publication up to which a prediction is good, or fair
PAUSE = 2e-3  # s after each prediction of a search, in which a move of a control comes first
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
        self._next: asyncio.TimerHandle | None = None
        self._show(Advice("Looking for what helps ...", "", {}), (0, 0))
        self.observe(lambda event: apply(event["new"][1]), "asked")

    def wait(self) -> None:
        """Say that the advice is of other settings, and look no further for one of the settings before."""
        self.state = {**self.state, "stale": True}
        if self._next:
            self._next.cancel()

    def follow(self, prediction: Breakdown, answered: tuple[int, int], choice: Choice) -> None:
        """Look for what helps this run most: tens of predictions, so once the controls rest, and one at a time.

        choice: what is predicted; a click on Apply changes it, so that what is promised is what it gives.
        """
        if self._next:
            self._next.cancel()
            self._tidy_up(prediction)
        self._look(_search(prediction, choice), prediction, answered)

    def _look(self, search: Search, p: Breakdown, answered: tuple[int, int]) -> None:
        """Go on with a search; without a loop to its end, else by one prediction."""
        self._next = None
        try:
            while True:
                next(search)
                with suppress(RuntimeError):
                    loop = asyncio.get_running_loop()
                    self._next = loop.call_later(PAUSE, self._look, search, p, answered)
                    return
        except StopIteration as end:
            self._show(end.value, answered)
            self._tidy_up(p)

    @staticmethod
    def _tidy_up(p: Breakdown) -> None:
        """Forget all layouts that a search tried, but for those that the next move shares with this run."""
        forget()
        predict(p.experiment)

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


def _search(p: Breakdown, choice: Choice) -> Search:
    """Look for the advice for a choice; the one that is known, unless its machine can be measured anew meanwhile."""
    key = "" if p.experiment.machine.measured else f"{written(choice)}\n{dumps(p.experiment)}"
    if key in KNOWN:
        return KNOWN[key]
    found = searched(p, lambda changes: experiment_of(choice.with_changes(changes)))
    advice = yield from found
    if key:
        if len(KNOWN) == MOST:
            del KNOWN[next(iter(KNOWN))]
        KNOWN[key] = advice
    return advice


def trust(prediction: Breakdown, replay: Replay | None) -> tuple[str, str, str]:
    """Return how far a prediction can be trusted: short, in words, and "good", "fair", "poor" or "unknown".

    replay: the published run, where it is shown as it was published.
    """
    if replay is not None:
        error = float(prediction.time_to_train) / replay.published_time - 1
        level = "good" if abs(error) <= GOOD else "fair" if abs(error) <= FAIR else "poor"
        return f"{error:+z.1%}", "against the published time", level
    found, calibrated = errors_of(prediction.experiment), is_calibrated(prediction.experiment)
    if is_ideal(prediction.experiment):
        return "not checked", "the device has efficiency 1, the default: set its own", "unknown"
    if not found:
        short = "calibrated" if calibrated else "not checked"
        return short, "too few published runs like this", "fair" if calibrated else "unknown"
    like = f"{found.rows} published runs like this"
    caveat = f". {words}" if (words := caveat_of(prediction.experiment)) else ""
    if calibrated:
        level = "good" if found.median <= GOOD and not caveat else "fair"
        words = f"median error of {like}; {found.worst:.0%} at worst{caveat}"
        return f"±{found.median:.0%}", words, level
    short = f"{found.low - 1:+z.0%} to {found.high - 1:+z.0%}"
    return short, f"of time, for 90% of {like}: no measured rate{caveat}", "unknown"
