"""The what-if explorer: controls on one side, and on the other all that follows from them."""

from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import ipywidgets

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.address import Address, decode, encode
from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.blocks.experiment_file import ExperimentFile
from lib_dlhpc.explore.blocks.panels import explanations_html, notice_html, problem_html
from lib_dlhpc.explore.blocks.plain_text import Column, Row
from lib_dlhpc.explore.blocks.style import PAGE_STYLE
from lib_dlhpc.explore.explorer.against import changes_words, difference_words
from lib_dlhpc.explore.explorer.bar import Bar, bar_state
from lib_dlhpc.explore.explorer.charts_section import Charts
from lib_dlhpc.explore.explorer.choice import Choice, History, experiment_of, read, written
from lib_dlhpc.explore.explorer.measured import Known, known_of
from lib_dlhpc.explore.explorer.moves import moved
from lib_dlhpc.explore.explorer.notebook_file import notebook
from lib_dlhpc.explore.explorer.panel import Panel, panel_state, wanted
from lib_dlhpc.explore.explorer.plan import Plan, trust
from lib_dlhpc.explore.explorer.presets import FIRST, of_file, preset
from lib_dlhpc.explore.explorer.run import Run
from lib_dlhpc.explore.explorer.simulation import Simulation
from lib_dlhpc.explore.explorer.soon import REST, Soon
from lib_dlhpc.explore.explorer.sweep import Sweep
from lib_dlhpc.explore.explorer.views import (
    headline_html,
    headlines,
    key_html,
    memory_parts,
    memory_state,
    step_parts,
    step_state,
)
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.prediction.explain import explain
from lib_dlhpc.prediction.replays import Replay
from lib_dlhpc.spec.experiment import Experiment, dumps, loads

STYLE = (
    f"<style>{(Path(__file__).parent / 'static' / 'page.css').read_text(encoding='utf-8')}</style>"
)


class Explorer:
    """The page's state: what is chosen, what is pinned as A, and the widgets that show it.

    Guarantee: a change either is shown everywhere or, if it is a mistake, is explained and changes nothing.
    """

    def __init__(self, experiment: Experiment | None = None) -> None:
        self.home = Choice(of_file(experiment) if experiment else preset(FIRST))
        self.history = History(self.home)
        self.pinned: Choice | None = None
        self.bar, self.address, self.panel = Bar(), Address(), Panel()
        self.figures = {name: chart(f"explorer_{name}") for name in ("step", "memory")}
        names = ("about", "headline", "step_key", "memory_key", "difference", "notices", "why")
        self.words = {name: ipywidgets.HTML() for name in names}
        self.file, self.simulation, self.charts, self.sweep = (
            ExperimentFile(),
            Simulation(),
            Charts(),
            Sweep(),
        )
        self.run = Run(self.refresh)
        self.plan = Plan(self.apply)
        self.every = ipywidgets.ToggleButton(
            description="Every number: formula, inputs, source", layout={"width": "auto"}
        )
        self._soon = Soon(REST)
        self._of_a: tuple[Choice, Breakdown] | None = None
        self._note = ""
        self._watch()
        self.refresh()
        self.widget = self._layout()

    @property
    def choice(self) -> Choice:
        """What is chosen now."""
        return self.history.now

    @property
    def experiment(self) -> Experiment:
        """The experiment that is chosen now."""
        return experiment_of(self.choice)

    @property
    def a(self) -> Choice:
        """What everything is compared with: what was pinned, else the preset."""
        return self.pinned or Choice(self.choice.preset)

    @property
    def replay(self) -> Replay | None:
        """The published run that is shown, if it is one as it was published."""
        return None if self.choice.changes else self.choice.preset.replay

    def load(self, experiment: Experiment) -> None:
        """Take over another experiment; raises SpecError, and changes nothing, if it cannot be predicted."""
        self._go(Choice(of_file(experiment)), prediction=predict(experiment))

    def move(self, field: str, value: Any) -> None:
        """Move one control; a value that is not legal is explained and changes nothing."""
        try:
            choice, prediction, note = moved(self.choice, field, value)
        except SpecError as error:
            self._explain(str(error))
        else:
            self._go(choice, [field], prediction, note)

    def choose(self, name: str) -> None:
        """Take over a preset, as it is."""
        try:
            self._go(Choice(preset(name)))
        except SpecError as error:
            self._explain(str(error))

    def apply(self, changes: Mapping[str, Any]) -> None:
        """Set several fields at once, such as those of an advice."""
        try:
            choice = self.choice.with_changes(changes)
            self._go(choice, prediction=predict(experiment_of(choice)))
        except SpecError as error:
            self._explain(str(error))

    def pin(self) -> None:
        """Compare everything with what is shown now; or with the preset again."""
        self.pinned = None if self.pinned else self.choice
        self.refresh()

    def refresh(self) -> None:
        """Show what is chosen."""
        self._show(predict(self.experiment))

    def _go(
        self,
        choice: Choice,
        fields: Iterable[str] = (),
        prediction: Breakdown | None = None,
        note: str = "",
    ) -> None:
        found = prediction or predict(experiment_of(choice))
        self.history.choose(choice, fields)
        self._note = note
        self._show(found)

    def _explain(self, problem: str) -> None:
        self._show(predict(self.experiment), problem)

    def _show(self, p: Breakdown, problem: str = "") -> None:
        """Show a prediction of what is chosen: the charts first, what takes longer once the controls rest."""
        measured = p.experiment.machine.measured is not None
        later = measured and p.experiment.strategy.is_split  # its draws take half a second
        known = Known() if later else known_of(p)
        a = self._prediction_of_a()
        self._draw(p, a, known)
        self._say(p, known, problem)
        self.panel.state = panel_state(
            self.choice, p.experiment, float(p.input_stall), self._answered
        )
        state = self._written()
        at_home = self.choice == self.home and self.pinned is None
        self.address.state = "" if at_home else state
        self.bar.link = state
        changed, history = bool(self.choice.changes), self.history
        name, pinned = self.choice.preset.name, self.pinned is not None
        self.bar.state = bar_state(name, changed, history.back, history.ahead, pinned)
        self._soon(lambda: self._rest(p, known_of(p) if later else known))

    def _draw(self, p: Breakdown, a: Breakdown | None, known: Known) -> None:
        self.figures["step"].update(*step_state(p, a, known.bands))
        self.figures["memory"].update(*memory_state(p, a))
        trusted = trust(p, self.replay)
        lines = headlines(p, self.replay)
        self.words["headline"].value = headline_html(lines, headlines(a) if a else None, trusted)
        for name, parts, unit in (("step_key", step_parts, "s"), ("memory_key", memory_parts, "B")):
            self.words[name].value = key_html(parts(p), parts(a) if a else [], unit)

    def _say(self, p: Breakdown, known: Known, problem: str) -> None:
        a = self._prediction_of_a()
        said = difference_words(p, a, changes_words(self.choice, self.a)) if a else ""
        self.words["difference"].value = (
            f'<p class="dl-said" role="status">{escape(said)}</p>' if said else ""
        )
        missed = self.replay.miss(float(p.time_to_train)) if self.replay else ""
        walls = [f"✗ {wall}" for wall in p.walls]
        notes = [
            note for note in (self._note, missed, *p.experiment.warnings, *known.notes) if note
        ]
        self.words["notices"].value = "".join(map(problem_html, [problem, *walls])) + "".join(
            map(notice_html, notes)
        )
        self.file.problem = ""
        now = self.choice.preset
        source = f"<p><small>{escape(now.source)}</small></p>" if now.source else ""
        self.words["about"].value = (
            f'<details class="dl-about"><summary>{escape(now.title)}</summary>'
            f"<p>{escape(now.description)}</p>{source}</details>"
        )

    def _rest(self, p: Breakdown, known: Known) -> None:
        """Show what can wait until the controls rest."""
        if p.experiment.strategy.is_split and known.bands:
            self._draw(p, self._prediction_of_a(), known)
            self._say(p, known, "")
        self.file.text = dumps(p.experiment)
        self.simulation.follow(p, known.bands)
        self.charts.follow(p)
        self.run.follow(p.experiment)
        self.sweep.follow(p.experiment)
        self.words["why"].value = explanations_html(explain(p)) if self.every.value else ""
        self.plan.follow(p)

    def _prediction_of_a(self) -> Breakdown | None:
        """Return the prediction of A; None where it is what is shown."""
        if self.a == self.choice:
            return None
        if self._of_a is None or self._of_a[0] != self.a:
            self._of_a = (self.a, predict(experiment_of(self.a)))
        return self._of_a[1]

    def _written(self) -> str:
        return encode(written(self.choice, self.pinned))

    @property
    def _answered(self) -> int:
        return int(self.panel.moved[0]) if self.panel.moved else 0

    def _watch(self) -> None:
        self.panel.observe(self._on_move, "moved")
        self.bar.observe(self._on_ask, "asked")
        self.address.observe(self._on_arrival, "arrivals")
        self.file.observe(self._on_file, "loaded")
        self.every.observe(lambda _: self.refresh(), "value")

    def _on_move(self, event: Any) -> None:
        _, field, label = event["new"]
        try:
            value = wanted(self.choice, field, label)
        except SpecError as error:
            self._explain(str(error))
        else:
            self.move(field, value)

    def _on_ask(self, event: Any) -> None:
        _, what, of = event["new"]
        if what == "preset":
            self.choose(of)
        elif what == "pin":
            self.pin()
        elif what in ("undo", "redo"):
            self._note = ""
            getattr(self.history, what)()
            self.refresh()
        elif what == "notebook":
            name = f"{self.choice.preset.name or 'experiment'}.ipynb"
            text = notebook(self.choice.preset.title, self.experiment, self._written())
            self.bar.file = [self._saved, name, "application/x-ipynb+json", text]

    @property
    def _saved(self) -> int:
        return int(self.bar.file[0]) + 1 if self.bar.file else 1

    def _on_arrival(self, _: Any) -> None:
        ignored: tuple[str, ...] = ()
        if not self.address.arrived:
            choice, pinned = self.home, None
        else:
            arrived = decode(self.address.arrived)
            choice, pinned, ignored = read(arrived.fields)
            ignored = (*arrived.ignored, *ignored)
        self.pinned = pinned
        words = (
            f"The address was not understood in full. Ignored: {'; '.join(ignored)}"
            if ignored
            else ""
        )
        self._go(choice, note=words)

    def _on_file(self, event: Any) -> None:
        try:
            self.load(loads(event["new"][1]))
        except (SpecError, IndexError, TypeError) as error:
            self.file.problem = str(error)

    def _layout(self) -> ipywidgets.Box:
        box = ipywidgets.VBox
        unseen = _named(box([ipywidgets.HTML(PAGE_STYLE + STYLE), self.address]), "dlhpc-hidden")
        controls = _named(box([self.panel, self.file]), "dl-controls")
        step = _named(Column([self.figures["step"], self.words["step_key"]]), "dl-card")
        memory = _named(Column([self.figures["memory"], self.words["memory_key"]]), "dl-card")
        top = _named(Column([self.words["headline"], step]), "dl-top")
        lead = _named(Column([top, controls]), "dl-lead")
        sections = (self.simulation, self.run, self.sweep, self.charts)
        buttons = _named(
            ipywidgets.Box([*(each.opened for each in sections), self.every]), "dl-sections"
        )
        bodies = [_named(each.body, "dl-section") for each in sections]
        rest = [
            self.words["difference"],
            self.words["notices"],
            memory,
            buttons,
            *bodies,
            self.words["why"],
        ]
        below = _named(Column(rest), "dl-below", "dlhpc-results")
        main = _named(Row([self.plan.card, lead, below]), "dl-main")
        return _named(Column([unseen, self.bar, self.words["about"], main]), "dl-explorer")


def _named(widget: Any, *names: str) -> Any:
    for name in names:
        widget.add_class(name)
    return widget


def explorer(experiment: Experiment | None = None) -> ipywidgets.Box:
    """Return the explorer as a widget, opened on `experiment` or on the first published run."""
    return Explorer(experiment).widget
