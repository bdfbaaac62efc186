"""The what-if explorer: controls on one side, and on the other all that follows from them."""

from collections.abc import Callable
from typing import Any

import ipywidgets

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.blocks.experiment_file import ExperimentFile
from lib_dlhpc.explore.blocks.panels import (
    explanations_html,
    headline_html,
    notice_html,
    problem_html,
    replay_html,
    walls_html,
)
from lib_dlhpc.explore.blocks.plain_text import Row
from lib_dlhpc.explore.blocks.style import PAGE_STYLE, Labels
from lib_dlhpc.explore.explorer.controls import YOURS, change, make_controls, select, show
from lib_dlhpc.explore.explorer.measured import Known, known_of
from lib_dlhpc.explore.explorer.play import REST, Play, Soon
from lib_dlhpc.explore.explorer.run import Run
from lib_dlhpc.explore.explorer.sweep import Sweep
from lib_dlhpc.explore.explorer.views import Views, views
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.prediction.explain import explain
from lib_dlhpc.prediction.replays import Replay, replay, replays
from lib_dlhpc.spec.experiment import Experiment, dumps, loads

CHARTS = ("step", "scaling", "efficiency", "memory", "totals", "sensitivity")
START = "goyal-2017"


class Explorer:
    """The page's state: one experiment, the replay it came from if any, and the widgets that show it.

    Guarantee: a change either is shown everywhere or, if it is a mistake, is told and shown nowhere.
    """

    def __init__(self, experiment: Experiment | None = None) -> None:
        self.experiment = experiment or replay(START).experiment
        self.replay: Replay | None = None if experiment else replay(START)
        self.controls = make_controls()
        self.figures = {name: chart(name) for name in CHARTS}
        self.headline, self.walls, self.story, self.why = (ipywidgets.HTML() for _ in range(4))
        self.file, self.play, self.run = ExperimentFile(), Play(), Run()
        self.sweep = Sweep()
        # A button, because an accordion's titles cannot be reached by keyboard.
        self.opened = ipywidgets.ToggleButton(
            description="Where every number comes from",
            icon="caret-right",
            layout={"width": "auto"},
        )
        self._showing, self._soon = False, Soon(REST)
        self._watch()
        self.refresh()
        self.widget = self._layout()

    def load(self, experiment: Experiment, origin: Replay | None = None) -> None:
        """Take over another experiment; raises SpecError, and changes nothing, if it cannot be predicted."""
        prediction = predict(experiment)
        later = experiment.strategy.is_split and experiment.machine.measured is not None
        known = Known() if later else known_of(prediction)
        shown = views(prediction, origin, known.bands)
        self.experiment, self.replay = experiment, origin
        self._show(prediction, shown, known)
        self._soon.cancel()
        if later:  # draws of a network that is split take half a second: once the controls rest
            self._soon(lambda: self._learn(prediction))

    def _learn(self, prediction: Breakdown) -> None:
        known = known_of(prediction)
        self._show(prediction, views(prediction, self.replay, known.bands), known)

    def refresh(self) -> None:
        """Show the present experiment."""
        self.load(self.experiment, self.replay)

    def _show(self, prediction: Breakdown, shown: Views, known: Known) -> None:
        self._showing = True
        try:
            show(self.controls, self.experiment)
            runs = [(YOURS, ""), *((run.title, run.name) for run in replays())]
            select(self.controls["replay"], runs, self.replay.name if self.replay else "")
        finally:
            self._showing = False
        for name, figure in self.figures.items():
            figure.update(*shown.charts[name])
        self.headline.value = headline_html(shown.headline)
        missed = self.replay.miss(float(prediction.time_to_train)) if self.replay else ""
        notes = [*([missed] if missed else []), *self.experiment.warnings, *known.notes]
        self.walls.value = walls_html(shown.walls) + "".join(map(notice_html, notes))
        self.story.value = replay_html(self.replay)
        self.file.text, self.file.problem = dumps(self.experiment), ""
        self.play.follow(prediction, known.bands)
        self.run.follow(self.experiment)
        self.sweep.follow(self.experiment)
        shown_why = self.opened.value
        self.opened.icon = "caret-down" if shown_why else "caret-right"
        self.why.value = explanations_html(explain(prediction)) if shown_why else ""

    def _watch(self) -> None:
        for name, control in self.controls.items():
            control.observe(self._on_control(name), "value")
        self.file.observe(self._on_file, "loaded")
        self.opened.observe(lambda _: self.refresh(), "value")

    def _on_control(self, name: str) -> Callable[[Any], None]:
        def moved(event: Any) -> None:
            if self._showing:
                return
            try:
                if name != "replay":
                    self.load(change(self.experiment, name, event["new"]))
                elif event["new"]:
                    chosen = replay(event["new"])
                    self.load(chosen.experiment, chosen)
                else:
                    self.load(self.experiment)
            except SpecError as error:
                self.refresh()
                self.walls.value = problem_html(str(error))

        return moved

    def _on_file(self, event: Any) -> None:
        try:
            self.load(loads(event["new"][1]))
        except (SpecError, IndexError, TypeError) as error:
            self.file.problem = str(error)

    def _layout(self) -> ipywidgets.Box:
        box = ipywidgets.VBox
        unseen = box([ipywidgets.HTML(PAGE_STYLE), Labels()])
        unseen.add_class("dlhpc-hidden")
        controls = box([*self.controls.values(), self.story, self.file, unseen])
        controls.add_class("dlhpc-controls")
        charts = ipywidgets.Box(list(self.figures.values()))
        charts.add_class("dlhpc-charts")
        below = (self.play.widget, self.run.widget, self.sweep.widget, self.opened, self.why)
        results = box([self.headline, self.walls, charts, *below])
        results.add_class("dlhpc-results")
        page = Row([controls, results])
        page.add_class("dlhpc-page")
        return page


def explorer(experiment: Experiment | None = None) -> ipywidgets.Box:
    """Return the explorer as a widget, opened on `experiment` or on the first historical run."""
    return Explorer(experiment).widget
