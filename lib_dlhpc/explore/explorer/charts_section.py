"""The explorer's charts on demand: scaling, efficiency, cost, and what would help most."""

from typing import Any

import ipywidgets

from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.explorer.device_charts import sensitivity_state
from lib_dlhpc.explore.explorer.soon import REST, Soon
from lib_dlhpc.explore.explorer.views import over_devices
from lib_dlhpc.prediction import Breakdown, sensitivity

NAMES = ("scaling", "efficiency", "totals", "sensitivity")


class Charts:
    """The section's state: the newest prediction, and the charts of it, once it was opened."""

    def __init__(self) -> None:
        self.opened = ipywidgets.ToggleButton(
            description="Scaling, cost, what would help most", layout={"width": "auto"}
        )
        self.body = ipywidgets.Box([])
        self.body.add_class("dl-charts")
        self.figures: dict[str, Any] = {}
        self._prediction: Breakdown | None = None
        self._soon = Soon(REST)
        self.opened.observe(self._toggled, "value")

    def follow(self, prediction: Breakdown) -> None:
        """Take over another prediction; its charts follow once the controls rest."""
        self._prediction = prediction
        if self.opened.value:
            self._soon(self.show)

    def show(self) -> None:
        """Show the charts of the newest prediction."""
        if self._prediction is None or not self.opened.value:
            return
        states = over_devices(self._prediction)
        states["sensitivity"] = sensitivity_state(sensitivity(self._prediction))
        for name, figure in self.figures.items():
            figure.update(*states[name])

    def _toggled(self, _: Any) -> None:
        if not self.opened.value:
            self.body.children = ()
            return
        if not self.figures:
            self.figures = {name: chart(name) for name in NAMES}
        self.show()
        self.body.children = tuple(self.figures.values())
