"""A runner with a figure and a table below it, empty until there is something to show.

def work(panel: Panel) -> None:
    panel.say("Two ranks at work ...")
    found = measure(panel.stop)
    panel.show(measured_state(found), result_html(found))

Panel("Measure", "measured", work, "Not measured yet.").widget
"""

from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets

from lib_dlhpc.explore.blocks.bench import update
from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.runner import Runner


class Panel(Runner):
    """The buttons and the line of a runner. figure: the chart's name; work, more: as of Runner."""

    def __init__(
        self, label: str, figure: str, work: Callable[[Any], None], *more: Any, **options: Any
    ) -> None:
        super().__init__(label, work, *more, **options)
        self.figure, self.table = chart(figure), ipywidgets.HTML()
        self.below = ipywidgets.VBox([])
        self.widget.children = (*self.widget.children, self.below)

    def show(self, state: State | Mapping[str, Any], table: str = "") -> None:
        """Show a state of the figure, and a table below it; HTML."""
        update(self.figure, state)
        self.table.value = table
        self.below.children = (self.figure, self.table)
