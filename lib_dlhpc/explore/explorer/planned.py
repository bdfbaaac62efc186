"""The explorer's section "Plan this": the best layouts of a run on its devices, each with a button that applies it.

The search runs in the background. What it found stays while the controls move, with its gain over what is shown now, as
long as the question is the same: model, machine, devices, global batch, and all settings that a plan does not vary.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from html import escape
from typing import Any

import ipywidgets

from lib_dlhpc.explore.blocks.panels import notice_html
from lib_dlhpc.explore.blocks.plain_text import Column, Line, Row
from lib_dlhpc.explore.blocks.runner import Runner, Thread
from lib_dlhpc.explore.explorer.section import Bands, Section
from lib_dlhpc.planner import Choice, Plan, plan
from lib_dlhpc.planner.result import in_words, value
from lib_dlhpc.prediction import Breakdown
from lib_dlhpc.prediction.changes.advice import fits
from lib_dlhpc.prediction.clear_caches import forget
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show

MOST = 300  # predictions
SHOWN = 4  # layouts
REASONS = 3  # why others were left out
EVERY = 0.25  # s between two reports of progress
SAME = 0.0005  # of an objective; less is no difference
AUTO = {"strategy.data": 0}  # so that it follows when the nodes move
OTHER = "The settings have changed. Press Plan again for the current ones."
Changes = Mapping[str, Any]


class Moved(Exception):
    """The settings are no longer those that are planned."""


class Planned(Section):
    """The section's state: the plan that was found, and the experiment it is of.

    apply: sets the fields of a layout. words: says in words what they change of what is shown.
    """

    def __init__(
        self,
        apply: Callable[[Changes], None],
        words: Callable[[Changes], str],
        thread: Thread = threading.Thread,
    ) -> None:
        super().__init__("Plan this")
        tooltip = f"The best layouts on these devices, up to {MOST} predictions"
        self.runner = Runner("Plan again", self._work, tooltip=tooltip, thread=thread)
        self.layouts = Column([])
        self.layouts.add_class("dl-plan")
        self.asked: Experiment | None = None
        self.found: Plan | None = None
        self._apply, self._words = apply, words

    def follow(self, prediction: Breakdown, bands: Bands | None = None) -> None:
        """Take over another prediction: compare what was found with it, or drop it where the question is another."""
        self.newest, self.bands = prediction, bands or {}
        if self.found is not None and not self._is_asked(prediction.experiment):
            self.asked = self.found = None
            self.runner.said.value = notice_html(OTHER)
        if self.opened.value:
            self.soon(lambda: self._draw(prediction))

    def _show(self, prediction: Breakdown) -> None:
        """Show what was found; look for it where nothing was."""
        self.body.children = (self.runner.widget, self.layouts)
        if self.found is None:
            self.runner.start()
        self._draw(prediction)

    def _close(self) -> None:
        self.runner.stop.set()
        super()._close()

    def _work(self, runner: Runner) -> None:
        while True:
            assert self.newest is not None
            asked = self.newest.experiment
            runner.say("Bounding all layouts ...", 0.0)
            most = min(MOST, asked.plan.predictions)
            try:
                found = plan(asked, most=most, progress=self.reports(asked))
            except Moved:
                continue
            if self.newest.experiment == asked:
                break
        forget()
        self.asked, self.found = asked, found
        runner.say(_certificate_html(found))
        self._draw(self.newest)

    def reports(self, asked: Experiment) -> Callable[[int, int], None]:
        """Return what reports progress, and ends the search on Cancel or where the controls moved."""
        due = 0.0

        def progress(tried: int, of: int) -> None:
            nonlocal due
            self.runner.check()
            if time.monotonic() >= due:
                due = time.monotonic() + EVERY
                words = f"{tried:,} of {of:,} layouts, the most promising first"
                self.runner.say(words, tried / of)
                if self.newest is not None and self.newest.experiment != asked:
                    raise Moved

        return progress

    def _is_asked(self, now: Experiment) -> bool:
        """Whether an experiment differs from that of the plan in its layout alone."""
        asked, found = self.asked, self.found
        assert asked is not None and found is not None
        names = [key.partition(".")[2] for key in found.best.changes]
        strategy = replace(now.strategy, **{name: getattr(asked.strategy, name) for name in names})
        same = replace(now, strategy=strategy, calibration=asked.calibration) == asked
        return same and bool(now.global_batch == asked.global_batch)

    def _draw(self, now: Breakdown) -> None:
        found = self.found
        if found is None:
            self.layouts.children = ()
            return
        several = len(found.objectives) > 1
        choices = found.front if several else found.ranked
        knee = found.knee if several else None
        self.layouts.children = [
            self._layout(found, choice, now, choice is knee) for choice in choices[:SHOWN]
        ]

    def _layout(self, found: Plan, choice: Choice, now: Breakdown, knee: bool) -> Row:
        fields = {**choice.changes, **AUTO}
        changed = self._words(fields)
        line = Line(_layout_html(found, choice, now, changed, knee))
        button = ipywidgets.Button(description="Apply", tooltip=f"Sets {changed}")
        button.on_click(lambda _: self._apply(fields))
        return Row([line, button] if changed else [line])


def _certificate_html(found: Plan) -> str:
    certificate = found.certificate[0].upper() + found.certificate[1:]
    searched = f"{found.legal:,} layouts, {found.predicted:,} predicted."
    reasons = "; ".join(found.reasons[:REASONS])
    left_out = f" Left out: {escape(reasons)}." if reasons else ""
    return f"{escape(certificate)}. <small>{searched}{left_out}</small>"


def _layout_html(found: Plan, choice: Choice, now: Breakdown, changed: str, knee: bool) -> str:
    """Return a layout in words, its gain over the present one, and what changes."""
    gains = [_gain(choice.prediction, now, name) for name in found.objectives]
    named = escape(choice.words) + (" (knee of the front)" if knee else "")
    amounts = [
        in_words(choice.values[name], name)
        for name in dict.fromkeys((*found.objectives, "time", "energy"))
    ]
    amounts.append(f"{show(choice.values['memory'], 'B')} on the fullest device")
    what = f"Changes {escape(changed)}." if changed else "This is what is shown now."
    gain = " ".join(gains) if fits(now) else '<i class="better">fits</i>'
    return f"<p><b>{named}</b> {gain}</p><small>{', '.join(amounts)}. {what}</small>"


def _gain(new: Breakdown, now: Breakdown, name: str) -> str:
    saved = 1 - value(new, name) / value(now, name)
    if abs(saved) < SAME:
        return f"<i>the same {name}</i>"
    kind, word = ("better", "less") if saved > 0 else ("worse", "more")
    return f'<i class="{kind}">{abs(saved):.1%} {word} {name}</i>'
