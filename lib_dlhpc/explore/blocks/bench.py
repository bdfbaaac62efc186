"""An experiment of a lesson, declared: its settings with their controls, a pure view, and what the page shows.

class Pipe(NamedTuple):
    '''One pipeline.'''

    ranks: Annotated[int, Slider("GPUs", "p: each has a stage, or several", (2, 4, 8, 16))] = 4
    schedule: Annotated[str, Dropdown("Schedule", "Who computes what when", SCHEDULES)] = "GPipe"

@on_bench(Pipe(), "gantt", "pipeline_memory", fine="It fits.")
def a_pipeline(pipe: Pipe) -> View:
    'Look for the hatched stripes.'
    return View(words=..., wall=..., charts={"gantt": ..., "pipeline_memory": ...})

a_pipeline()                the experiment on a page: a Bench
a_pipeline.view(Pipe(8))    what a setting shows
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, get_type_hints

import ipywidgets

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.panels import notice_html
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, verdict_html, wall_html, workbench
from lib_dlhpc.spec.units import format_quantity

S = TypeVar("S")  # the settings of a bench, a NamedTuple


def shown(value: Any) -> str:
    """Return the text of a choice that has no other: thousands with commas."""
    return f"{value:,}" if isinstance(value, int) else str(value)


def amount(unit: str) -> Callable[[float], str]:
    """Return what shows a choice with its unit: amount("B")(25e6) is "25 MB"."""
    return lambda value: format_quantity(value, unit)


def gigabits(rate: float) -> str:
    """Return B/s as networks are sold: 25 Gb/s."""
    return f"{8 * rate / 1e9:g} Gb/s"


@dataclass(frozen=True)
class Slider:
    """A setting that is chosen on a slider. values: the choices, or a mapping from text to choice."""

    label: str
    tooltip: str
    values: Iterable[Any] | Mapping[str, Any]
    shown: Callable[[Any], str] = shown

    def widget(self, value: Any) -> Any:
        """Return the control, standing at `value`."""
        return slider(self.label, self.tooltip, self.choices(), value)

    def choices(self) -> list[tuple[str, Any]]:
        """Return each choice with its text."""
        if isinstance(self.values, Mapping):
            return list(self.values.items())
        return [(self.shown(value), value) for value in self.values]


class Dropdown(Slider):
    """A setting that is chosen from a list."""

    def widget(self, value: Any) -> Any:
        """Return the control, standing at `value`."""
        return dropdown(self.label, self.tooltip, self.choices(), value)


@dataclass(frozen=True)
class View:
    """What a setting shows. words: HTML; wall: the limit that is hit, or ""; charts: by name.

    fine: said while there is no wall, where it depends on the setting. notice: what to know in its place.
    """

    words: str = ""
    wall: str = ""
    charts: Mapping[str, State | Mapping[str, Any]] = field(default_factory=dict)
    fine: str = ""
    notice: str = ""


class Bench(ipywidgets.Box, Generic[S]):
    """Controls beside what follows from them.

    first: the settings at first. view: what settings show; where it raises SpecError, the reason stands in the place
    of the wall, and the charts stay. results: names of charts, and widgets, from top to bottom. fine: said while
    there is no wall; None where walls are not spoken of. look: one sentence of what to look for.
    """

    def __init__(
        self,
        first: S,
        view: Callable[[S], View],
        results: Sequence[str | ipywidgets.Widget],
        fine: str | None = None,
        look: str = "",
    ) -> None:
        self._kind, self._view, self._fine, self.look = type(first), view, fine, look
        self.controls, self.figure = controls_of(first), self._kind.__module__.rpartition(".")[2]
        self.charts = {name: chart(name) for name in results if isinstance(name, str)}
        self._words, self._wall = ipywidgets.HTML(), ipywidgets.HTML()
        said = [self._words] if fine is None else [self._words, self._wall]
        shown = [self.charts[each] if isinstance(each, str) else each for each in results]
        page = workbench(self.controls, [*said, *shown], self.show, look, self.figure)
        super().__init__(page.children)
        self.add_class("dlhpc-page")

    @property
    def setting(self) -> S:
        """What the controls say."""
        return self._kind(**{name: control.value for name, control in self.controls.items()})

    def show(self) -> None:
        """Show what the controls say, as any move of them does."""
        try:
            view = self._view(self.setting)
        except SpecError as reason:
            self._wall.value = wall_html(str(reason), "")
            still = verdict_html("The charts still show the last setting that is possible.")
            self._words.value = self._wall.value + still if self._fine is None else still
            return
        self.put(view)

    def put(self, view: View, wall: bool = True) -> None:
        """Show a view. wall: with its wall, or leave the last one."""
        self._words.value = verdict_html(view.words)
        if self._fine is not None and wall:
            fine = notice_html(view.notice) or wall_html("", view.fine or self._fine)
            self._wall.value = wall_html(view.wall, "") if view.wall else fine
        for name, state in view.charts.items():
            update(self.charts[name], state)


@dataclass(frozen=True)
class OnBench(Generic[S]):
    """An experiment that is not on a page yet: a view, with all else that its bench needs."""

    view: Callable[[S], View]
    first: S
    charts: Sequence[str]
    fine: str | None

    def __call__(self) -> Bench[S]:
        """Return it on a page."""
        return Bench(self.first, self.view, self.charts, self.fine, look_of(self.view))


def on_bench(
    first: S, *charts: str, fine: str | None = None
) -> Callable[[Callable[[S], View]], OnBench[S]]:
    """Make a view an experiment; its docstring says what to look for. first, charts, fine: as of Bench."""
    return lambda view: OnBench(view, first, charts, fine)


def look_of(experiment: Callable[..., Any]) -> str:
    """Return what an experiment's docstring says to look for."""
    return " ".join(str(experiment.__doc__).split()).removeprefix("Look for ")


def update(figure: Any, state: State | Mapping[str, Any]) -> None:
    """Show a state on a figure: (data, summary), or these and signals by name."""
    figure.update(**state) if isinstance(state, Mapping) else figure.update(*state)


def controls_of(first: Any) -> dict[str, Any]:
    """Return the controls of settings by their names, each standing where `first` has it."""
    hints = get_type_hints(type(first), include_extras=True)
    return {
        name: hints[name].__metadata__[0].widget(getattr(first, name))
        for name in first._fields
        if hasattr(hints[name], "__metadata__")
    }
