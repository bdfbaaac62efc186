"""The explorer's section "Run this here": some real steps beside what is foretold of them, where that can be.

What runs ranks is imported when the section is first opened: most visitors never do.
"""

from typing import TYPE_CHECKING, Any

import ipywidgets

from lib_dlhpc.spec.experiment import Experiment

if TYPE_CHECKING:
    from lib_dlhpc.explore.compare.page import RunHere


class Run:
    """The section's state: the newest experiment, and the panel that runs it, once it was opened."""

    def __init__(self) -> None:
        self.opened = ipywidgets.ToggleButton(
            description="Run this here", icon="caret-right", layout={"width": "auto"}
        )
        self.widget = ipywidgets.VBox([self.opened])
        self.panel: RunHere | None = None
        self._experiment: Experiment | None = None
        self.opened.observe(self._toggled, "value")

    def follow(self, experiment: Experiment) -> None:
        """Take over another experiment."""
        self._experiment = experiment
        if self.panel is not None and self.opened.value:
            self.panel.follow(experiment)

    def _toggled(self, _: Any) -> None:
        shown = self.opened.value
        self.opened.icon = "caret-down" if shown else "caret-right"
        if not shown:
            self.widget.children = (self.opened,)
            return
        if self.panel is None:
            from lib_dlhpc.explore.compare.page import RunHere

            self.panel = RunHere(label="Run")
        if self._experiment is not None:
            self.panel.follow(self._experiment)
        self.widget.children = (self.opened, self.panel.widget)
