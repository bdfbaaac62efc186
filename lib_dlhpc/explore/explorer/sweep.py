"""The explorer's section "Sweep a setting": one thing varied, each value predicted at once, measured here if asked for.

Nothing is predicted before the section is opened, and what runs ranks is imported then: most visitors never do.
"""

from typing import TYPE_CHECKING, Any

import ipywidgets

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.panels import problem_html
from lib_dlhpc.explore.blocks.style import Labels
from lib_dlhpc.explore.explorer.axes import Axis, axes_of, values_from
from lib_dlhpc.explore.explorer.soon import REST, Soon
from lib_dlhpc.spec.experiment import Experiment

if TYPE_CHECKING:
    from lib_dlhpc.explore.compare.sweep import SweepHere


class Sweep:
    """The section's state: the newest experiment, what is varied of it, and the panel, once it was opened."""

    def __init__(self) -> None:
        self.opened = ipywidgets.ToggleButton(
            description="Sweep a setting", layout={"width": "auto"}
        )
        self.controls = _controls()
        self.here: SweepHere | None = None
        self._experiment: Experiment | None = None
        self._filling = False
        self._written = False  # whether somebody wrote values of their own
        self._soon = Soon(REST)
        self.said = ipywidgets.HTML()
        labels = ipywidgets.VBox([Labels()])
        labels.add_class("dlhpc-hidden")
        self._bar = ipywidgets.Box([*self.controls.values(), labels])
        for name in ("dlhpc-play-controls", "dlhpc-sweep"):
            self._bar.add_class(name)
        self.body = ipywidgets.VBox([])
        self.opened.observe(self._toggled, "value")
        self.controls["vary"].observe(lambda _: self._chosen(), "value")
        self.controls["values"].observe(lambda _: self._wrote(), "value")

    def follow(self, experiment: Experiment) -> None:
        """Take over another experiment; predict it where the section is open, once the controls rest."""
        self._experiment = experiment
        if self.opened.value:
            self._soon(self.show)

    def show(self) -> None:
        """Predict the present sweep and show it, or say why not."""
        self._soon.cancel()
        if self._experiment is None or not self.opened.value:
            return
        from lib_dlhpc.explore.compare.page import RANKS_A_CORE
        from lib_dlhpc.explore.compare.sweep import SweepHere
        from lib_dlhpc.explore.explorer.sweep_rows import predict_rows, rows_html, rows_state
        from lib_dlhpc.spec.host import cores

        if self.here is None:
            self.here = SweepHere(most=RANKS_A_CORE * cores())
        axis = self._fill(self._experiment)
        try:
            values = values_from(self.controls["values"].value)
        except SpecError as error:
            self._say(str(error))
            return
        rows = predict_rows(self._experiment, axis.field, values)
        if not any(row.step for row in rows):
            self._say(rows[0].problem)
            return
        self.said.value = ""
        state, table = rows_state(rows, axis.title), rows_html(rows)
        self.here.follow(self._experiment, {axis.field: values}, (state, table))
        self.body.children = (self._bar, self.said, self.here.widget)

    def _say(self, problem: str) -> None:
        self.said.value = problem_html(problem)
        self.body.children = (self._bar, self.said)

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
        if self.opened.value:
            self.show()
        else:
            self._soon.cancel()
            self.body.children = ()

    def _chosen(self) -> None:
        if not self._filling:
            self._written = False
            self.show()

    def _wrote(self) -> None:
        if not self._filling:
            self._written = bool(self.controls["values"].value.strip())
            self.show()


def select(control: Any, options: list[tuple[str, Any]], value: Any) -> None:
    """Make a dropdown offer `options` and stand at `value`, sent to the browser in one message."""
    with control.hold_sync():
        # Unchanged options are left alone: the browser would rebuild the whole control.
        if list(control.options) != options:
            control.options = options
        control.value = value


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
