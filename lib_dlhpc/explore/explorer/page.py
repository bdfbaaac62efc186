"""The what-if explorer: controls on one side, and on the other all that follows from them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import ipywidgets

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.address import Address, decode, encode
from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.blocks.experiment_file import ExperimentFile
from lib_dlhpc.explore.blocks.panels import explanation_html, notice_html, problem_html
from lib_dlhpc.explore.blocks.plain_text import Column, Row
from lib_dlhpc.explore.blocks.style import PAGE_STYLE
from lib_dlhpc.explore.explorer import parts
from lib_dlhpc.explore.explorer.against import changes_words
from lib_dlhpc.explore.explorer.bar import Bar, bar_state
from lib_dlhpc.explore.explorer.charts_section import Charts
from lib_dlhpc.explore.explorer.choice import (
    Choice,
    History,
    experiment_in,
    experiment_of,
    read,
    written,
)
from lib_dlhpc.explore.explorer.headlines import headline_html, headlines
from lib_dlhpc.explore.explorer.labels import labeled
from lib_dlhpc.explore.explorer.measured import Known, known_of
from lib_dlhpc.explore.explorer.moves import moved_again
from lib_dlhpc.explore.explorer.notebook_file import notebook
from lib_dlhpc.explore.explorer.panel import Panel, panel_state, wanted
from lib_dlhpc.explore.explorer.plan import Plan, trust
from lib_dlhpc.explore.explorer.planned import Planned
from lib_dlhpc.explore.explorer.presets import FIRST, of_file, preset
from lib_dlhpc.explore.explorer.run import Run
from lib_dlhpc.explore.explorer.section import Soon
from lib_dlhpc.explore.explorer.simulation import Simulation
from lib_dlhpc.explore.explorer.sweep import Sweep
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.prediction.changes.difference import difference_words
from lib_dlhpc.prediction.reports.explain import explain
from lib_dlhpc.prediction.validation.replays import Replay
from lib_dlhpc.spec.experiment import Experiment, dumps

STYLE = (
    f"<style>{(Path(__file__).parent / 'static' / 'page.css').read_text(encoding='utf-8')}</style>"
)
WORDS = ("about", "headline", "step_key", "memory_key", "difference", "notices", "why")
Found = tuple[Choice, Breakdown, str]  # a choice, its prediction, and what is to be known of it


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
        self.words = {name: ipywidgets.HTML() for name in WORDS}
        self.file = ExperimentFile()
        self.simulation, self.run, self.sweep = Simulation(), Run(self.refresh), Sweep()
        self.charts, self.plan = Charts(), Plan(self.apply)
        self.planned = Planned(self.apply, self._in_words)
        self.sections = (self.planned, self.simulation, self.run, self.sweep, self.charts)
        self.every = ipywidgets.ToggleButton(
            description="Every number",
            tooltip="Formula, inputs and source of each",
            layout={"width": "auto"},
        )
        self._soon, self._note = Soon(), ""
        self._of_a: tuple[Choice, Breakdown] | None = None
        self.panel.observe(self._on_move, "moved")
        self.bar.observe(self._on_ask, "asked")
        self.address.observe(self._on_arrival, "arrivals")
        self.file.observe(self._on_file, "loaded")
        self.every.observe(lambda _: self.refresh(), "value")
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
        self._go(_predicted(Choice(of_file(experiment))))

    def move(self, field: str, value: Any) -> None:
        """Move one control; a value that is not legal is explained and changes nothing."""
        self._try(lambda: moved_again(self.history, field, value), [field])

    def choose(self, name: str) -> None:
        """Take over a preset, as it is."""
        self._try(lambda: _predicted(Choice(preset(name))))

    def apply(self, changes: Mapping[str, Any]) -> None:
        """Set several fields at once, such as those of an advice."""
        self._try(lambda: _predicted(self.choice.with_changes(changes)))

    def _in_words(self, changes: Mapping[str, Any]) -> str:
        return changes_words(self.choice.with_changes(changes), self.choice)

    def pin(self) -> None:
        """Compare everything with what is shown now; or with the preset again."""
        self.pinned = None if self.pinned else self.choice
        self.refresh()

    def refresh(self) -> None:
        """Show what is chosen."""
        self._show(predict(self.experiment))

    def _try(self, find: Callable[[], Found], fields: Iterable[str] = ()) -> None:
        try:
            found = find()
        except SpecError as error:
            self._show(predict(self.experiment), str(error))
        else:
            self._go(found, fields)

    def _go(self, found: Found, fields: Iterable[str] = ()) -> None:
        choice, prediction, self._note = found
        self.history.choose(choice, fields)
        self._show(prediction)

    def _show(self, p: Breakdown, problem: str = "") -> None:
        """Show a prediction of what is chosen: the charts first, what takes longer once the controls rest."""
        measured = p.experiment.machine.measured is not None
        later = measured and p.experiment.strategy.is_split  # its draws take half a second
        known = Known() if later else known_of(p)
        self._draw(p, known, problem)
        self.plan.wait()
        self.file.problem = ""
        choice, history, preset_ = self.choice, self.history, self.choice.preset
        stall = float(p.input_stall)
        self.panel.state = panel_state(choice, p.experiment, stall, _serial(self.panel.moved))
        self.bar.link = self._link
        at_home = choice == self.home and self.pinned is None
        self.address.state = "" if at_home else self.bar.link
        pinned = self.pinned is not None
        changed = bool(choice.changes)
        self.bar.state = bar_state(preset_.name, changed, history.back, history.ahead, pinned)
        for section in self.sections:
            section.follow(p, known.bands)
        self._soon(lambda: self._rest(p, known_of(p) if later else known, later))

    def _draw(self, p: Breakdown, known: Known, problem: str = "") -> None:
        a = self._prediction_of_a()
        self.figures["step"].update(*parts.step_state(p, a, known.bands))
        self.figures["memory"].update(*parts.memory_state(p, a))
        missed = self.replay.miss(float(p.time_to_train)) if self.replay else ""
        problems = [labeled(problem), *(f"✗ {labeled(wall)}" for wall in p.walls)]
        notes = [
            each for each in (self._note, missed, *p.experiment.warnings, *known.notes) if each
        ]
        lines, of_a = headlines(p, self.replay), headlines(a) if a else None
        said = difference_words(p, a, changes_words(self.choice, self.a)) if a else ""
        shown = {
            "headline": headline_html(lines, of_a, trust(p, self.replay)),
            "step_key": parts.key_html(parts.step_parts(p), parts.step_parts(a) if a else [], "s"),
            "memory_key": parts.key_html(
                parts.memory_parts(p), parts.memory_parts(a) if a else [], "B"
            ),
            "difference": f'<p class="dl-said" role="status">{escape(said)}</p>' if said else "",
            "notices": "".join([*map(problem_html, problems), *map(notice_html, notes)]),
            "about": _about_html(self.choice),
        }
        for name, html in shown.items():
            self.words[name].value = html

    def _rest(self, p: Breakdown, known: Known, later: bool) -> None:
        """Show what can wait until the controls rest."""
        if later and known.bands:
            self._draw(p, known)
            for section in self.sections:
                section.follow(p, known.bands)
        self.file.text = dumps(p.experiment)
        shown = explain(p) if self.every.value else []
        each = "".join(map(explanation_html, shown))
        self.words["why"].value = f'<div class="dl-card">{each}</div>' if each else ""
        newest = (_serial(self.panel.moved), _serial(self.bar.asked))
        self.plan.follow(p, newest, self.choice)

    def _prediction_of_a(self) -> Breakdown | None:
        """Return the prediction of A; None where it is what is shown."""
        if self.a == self.choice:
            return None
        if self._of_a is None or self._of_a[0] != self.a:
            self._of_a = (self.a, predict(experiment_of(self.a)))
        return self._of_a[1]

    @property
    def _link(self) -> str:
        return encode(written(self.choice, self.pinned))

    def _on_move(self, event: Any) -> None:
        _, field, label = event["new"]
        self._try(
            lambda: moved_again(self.history, field, wanted(self.choice, field, label)), [field]
        )

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
            name, title = self.choice.preset.name or "experiment", self.choice.preset.title
            text = notebook(title, self.experiment, self._link)
            self.bar.file = [
                _serial(self.bar.file) + 1,
                f"{name}.ipynb",
                "application/x-ipynb+json",
                text,
            ]

    def _on_arrival(self, _: Any) -> None:
        choice, self.pinned, words = self.home, None, ""
        if self.address.arrived:
            arrived = decode(self.address.arrived)
            choice, self.pinned, more = read(arrived.fields)
            if ignored := "; ".join((*arrived.ignored, *more)):
                words = f"Parts of the address were not understood. Ignored: {ignored}"
        self._go(_predicted(choice, words))

    def _on_file(self, event: Any) -> None:
        try:
            self.load(experiment_in(event["new"][1], self.experiment))
        except (SpecError, IndexError, TypeError) as error:
            self.file.problem = str(error)

    def _layout(self) -> ipywidgets.Box:
        words, box = self.words, ipywidgets.VBox
        unseen = _named(box([ipywidgets.HTML(PAGE_STYLE + STYLE), self.address]), "dlhpc-hidden")
        step, memory = (
            _named(Column([figure, words[f"{name}_key"]]), "dl-card")
            for name, figure in self.figures.items()
        )
        top = _named(Column([words["headline"], step]), "dl-top")
        lead = _named(Column([top, _named(box([self.panel, self.file]), "dl-controls")]), "dl-lead")
        opened = [*(each.opened for each in self.sections), self.every]
        buttons = _named(ipywidgets.Box(opened), "dl-sections")
        bodies = [_named(each.place, "dl-card", "dl-section") for each in self.sections]
        rest = [words["notices"], memory, words["difference"], buttons, *bodies, words["why"]]
        below = _named(Column(rest), "dl-below", "dlhpc-results")
        main = _named(Row([self.plan, lead, below]), "dl-main")
        return _named(Column([unseen, self.bar, words["about"], main]), "dl-explorer")


def _serial(event: Sequence[Any]) -> int:
    """Return the number of the newest event of a widget; 0 where there was none."""
    return int(event[0]) if event else 0


def _predicted(choice: Choice, note: str = "") -> Found:
    return choice, predict(experiment_of(choice)), note


def _about_html(choice: Choice) -> str:
    """Return the story of what is chosen, folded."""
    now = choice.preset
    source = f"<p><small>{escape(now.source)}</small></p>" if now.source else ""
    return (
        f'<details class="dl-about"><summary>{escape(now.title)}</summary>'
        f"<p>{escape(now.description)}</p>{source}</details>"
    )


def _named(widget: Any, *names: str) -> Any:
    for name in names:
        widget.add_class(name)
    return widget


def explorer(experiment: Experiment | None = None) -> ipywidgets.Box:
    """Return the explorer as a widget, opened on `experiment` or on the first published run."""
    return Explorer(experiment).widget
