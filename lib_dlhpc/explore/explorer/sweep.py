"""The explorer's section "Sweep a setting": one thing varied, each value foretold at once, measured here if asked for.

Nothing is foretold before the section is opened, and what runs ranks is imported then: most visitors never do.
"""

from typing import TYPE_CHECKING, Any

import ipywidgets

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.panels import problem_html
from lib_dlhpc.explore.blocks.style import Labels
from lib_dlhpc.explore.explorer.axes import Axis, axes_of, values_from
from lib_dlhpc.explore.explorer.controls import select
from lib_dlhpc.explore.explorer.play import REST, Soon
from lib_dlhpc.spec.experiment import Experiment

if TYPE_CHECKING:
    from lib_dlhpc.explore.compare.sweep import SweepHere


class Sweep:
    """The section's state: the newest experiment, what is varied of it, and the panel, once it was opened."""

    def __init__(self) -> None:
        self.opened = ipywidgets.ToggleButton(
            description="Sweep a setting", icon="caret-right", layout={"width": "auto"}
        )
        self.controls = _controls()
        self.here: SweepHere | None = None
        self._experiment: Experiment | None = None
        self._filling = False
        self._written = False  # whether somebody wrote values of their own
        self._soon = Soon(REST)
        self.told = ipywidgets.HTML()
        labels = ipywidgets.VBox([Labels()])
        labels.add_class("dlhpc-hidden")
        self._bar = ipywidgets.Box([*self.controls.values(), labels])
        for name in ("dlhpc-play-controls", "dlhpc-sweep"):
            self._bar.add_class(name)
        self.widget = ipywidgets.VBox([self.opened])
        self.opened.observe(self._toggled, "value")
        self.controls["vary"].observe(lambda _: self._chosen(), "value")
        self.controls["values"].observe(lambda _: self._wrote(), "value")

    def follow(self, experiment: Experiment) -> None:
        """Take over another experiment; foretell it where the section is open, once the controls rest."""
        self._experiment = experiment
        if self.opened.value:
            self._soon(self.show)

    def show(self) -> None:
        """Foretell the present sweep and show it, or say why not."""
        self._soon.cancel()
        if self._experiment is None or not self.opened.value:
            return
        from lib_dlhpc.explore.compare.page import RANKS_A_CORE
        from lib_dlhpc.explore.compare.sweep import SweepHere
        from lib_dlhpc.explore.explorer.sweep_rows import foretell, told_html, told_state
        from lib_dlhpc.spec.host import cores

        if self.here is None:
            self.here = SweepHere(most=RANKS_A_CORE * cores())
        axis = self._fill(self._experiment)
        try:
            values = values_from(self.controls["values"].value)
        except SpecError as error:
            self._tell(str(error))
            return
        rows = foretell(self._experiment, axis.field, values)
        if not any(row.step for row in rows):
            self._tell(rows[0].problem)
            return
        self.told.value = ""
        state, table = told_state(rows, axis.title), told_html(rows)
        self.here.follow(self._experiment, {axis.field: values}, (state, table))
        self.widget.children = (self.opened, self._bar, self.told, self.here.widget)

    def _tell(self, problem: str) -> None:
        self.told.value = problem_html(problem)
        self.widget.children = (self.opened, self._bar, self.told)

    def _fill(self, experiment: Experiment) -> Axis:
        """Make the controls offer what can be varied, and return what is."""
        axes = {axis.field: axis for axis in axes_of(experiment)}
        vary, values = self.controls["vary"], self.controls["values"]
        self._filling = True
        try:
            field = vary.value if vary.value in axes else next(iter(axes))
            self._written = self._written and field == vary.value
            select(vary, [(axis.title, name) for name, axis in axes.items()], field)
            if not self._written:
                values.value = ", ".join(map(str, axes[field].values))
        finally:
            self._filling = False
        return axes[field]

    def _toggled(self, _: Any) -> None:
        shown = self.opened.value
        self.opened.icon = "caret-down" if shown else "caret-right"
        if shown:
            self.show()
        else:
            self._soon.cancel()
            self.widget.children = (self.opened,)

    def _chosen(self) -> None:
        if not self._filling:
            self._written = False
            self.show()

    def _wrote(self) -> None:
        if not self._filling:
            self._written = bool(self.controls["values"].value.strip())
            self.show()


def _controls() -> dict[str, Any]:
    style = {"description_width": "auto"}
    return {
        "vary": ipywidgets.Dropdown(
            description="Vary", tooltip="What differs between the settings", style=style
        ),
        "values": ipywidgets.Text(
            description="Values",
            tooltip="With commas between them; empty: those to begin with",
            continuous_update=False,
            style=style,
        ),
    }
