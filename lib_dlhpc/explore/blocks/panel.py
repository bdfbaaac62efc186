"""A runner with a figure and a table below it, empty until there is something to show; and experiments on it.

def work(panel: Panel) -> None:
    panel.say("Two ranks at work ...")
    found = measure(panel.stop)
    panel.show(measured_state(found), result_html(found))

Panel("Measure", "measured", work, "Not measured yet.").widget

@at_click(Setting(), asked_words, "Measure", "measured", "Not measured yet.")
def measure_here(panel: Panel, setting: Setting, measure: Measure = measure) -> None:
    'Look for the larger bar.'
    ...                     as above

measure_here()              controls, the runner, and what comes of it: a Bench
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic

import ipywidgets

from lib_dlhpc.explore.blocks.bench import Bench, S, View, look_of, update
from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.runner import Runner, Thread


class Panel(Runner):
    """The buttons and the line of a runner. figure: the chart's name; work, more: as of Runner.

    known: what clicks found so far, for those that follow.
    """

    def __init__(
        self, label: str, figure: str, work: Callable[[Any], None], *more: Any, **options: Any
    ) -> None:
        super().__init__(label, work, *more, **options)
        self.figure, self.table = chart(figure), ipywidgets.HTML()
        self.below = ipywidgets.VBox([])
        self.widget.children = (*self.widget.children, self.below)
        self.known: dict[Any, Any] = {}

    def show(self, state: State | Mapping[str, Any], table: str = "") -> None:
        """Show a state of the figure, and a table below it; HTML."""
        update(self.figure, state)
        self.table.value = table
        self.below.children = (self.figure, self.table)


@dataclass(frozen=True)
class AtClick(Generic[S]):
    """An experiment that is not on a page yet: what a click does, with all else that its bench needs."""

    work: Callable[..., None]
    first: S
    asked: Callable[[S], str | View]
    labels: tuple[str, ...]
    fine: str | None
    refused: Callable[[S], str]

    def __call__(self, *programs: Any, thread: Thread = threading.Thread) -> Bench[S]:
        """Return it on a page. programs: what the work calls, in place of its defaults; thread: as of Runner."""

        def refuse() -> str:
            setting[:] = [bench.setting]  # as it is at the click
            return self.refused(*setting)

        def view(setting: S) -> View:
            said = self.asked(setting)
            return said if isinstance(said, View) else View(said)

        def work(panel: Panel) -> None:
            self.work(panel, *setting, *programs)

        setting: list[S] = []
        label, figure, *said = self.labels
        panel = Panel(label, figure, work, *said, thread=thread, refuse=refuse)
        bench = Bench(self.first, view, panel.widget.children, self.fine, look_of(self.work))
        return bench


def at_click(
    first: S,
    asked: Callable[[S], str | View],
    *labels: str,
    fine: str | None = None,
    refused: Callable[[S], str] = lambda _: "",
) -> Callable[[Callable[..., None]], AtClick[S]]:
    """Make work(panel, setting, *programs) an experiment; its docstring says what to look for.

    first, fine: as of Bench. asked: what a click would do, in words or as a view. labels: button, figure and so on, as
    of Panel. refused: why a setting cannot be run, or "".
    """
    return lambda work: AtClick(work, first, asked, labels, fine, refused)
