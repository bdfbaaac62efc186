"""The explorer's section "Sweep a setting": one thing varied, each value predicted at once, measured here if asked for.

What runs ranks is imported when the section is first opened: most visitors never do.
"""

from typing import TYPE_CHECKING, Any

import ipywidgets

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.panels import problem_html
from lib_dlhpc.explore.explorer.axes import Axis, axes_of, values_from
from lib_dlhpc.explore.explorer.labels import labeled
from lib_dlhpc.explore.explorer.section import Section, control_bar
from lib_dlhpc.prediction import Breakdown
from lib_dlhpc.spec.experiment import Experiment

if TYPE_CHECKING:
    from lib_dlhpc.explore.compare.sweep import SweepHere

STYLE = {"description_width": "auto"}
EMPTY = "Separated by commas; leave empty for the first values"


class Sweep(Section):
    """The section's state: what is varied of the newest experiment, and the panel, once it was opened."""

    def __init__(self) -> None:
        super().__init__("Sweep a setting")
        vary = ipywidgets.Dropdown(
            description="Vary",
            tooltip="What differs between the settings",
            style=STYLE,
            layout={"width": "360px"},
        )
        values = ipywidgets.Text(
            description="Values", tooltip=EMPTY, continuous_update=False, style=STYLE
        )
        self.controls: dict[str, Any] = {"vary": vary, "values": values}
        self.here: SweepHere | None = None
        self.said = ipywidgets.HTML()
        self._filling = False
        self._written = False  # whether somebody wrote values of their own
        self._bar = control_bar(vary, values)
        self._bar.add_class("dlhpc-sweep")
        vary.observe(lambda _: self._moved(""), "value")
        values.observe(lambda _: self._moved(values.value.strip()), "value")

    def _show(self, prediction: Breakdown) -> None:
        """Predict the present sweep and show it, or say why not."""
        from lib_dlhpc.explore.compare.page import RANKS_A_CORE
        from lib_dlhpc.explore.compare.sweep import SweepHere
        from lib_dlhpc.explore.explorer.sweep_rows import predict_rows, rows_html, rows_state
        from lib_dlhpc.spec.host import cores

        if self.here is None:
            self.here = SweepHere(most=RANKS_A_CORE * cores(), refuse=self.catch_up)
        experiment = prediction.experiment
        axis = self._fill(experiment)
        # Hidden, not taken out: the browser would draw the controls anew, and forget where the focus was.
        self.body.children = (self._bar, self.said, self.here.widget)
        try:
            values = values_from(self.controls["values"].value)
            rows = predict_rows(experiment, axis.field, values)
            if not any(row.step for row in rows):
                raise SpecError(rows[0].problem)
        except SpecError as error:
            self.said.value = problem_html(labeled(str(error)))
            self.here.widget.layout.display = "none"
            return
        self.said.value = ""
        self.here.widget.layout.display = None
        state = rows_state(rows, axis.title)
        self.here.follow(experiment, {axis.field: values}, (state, rows_html(rows)))

    def _fill(self, experiment: Experiment) -> Axis:
        """Make the controls offer what can be varied, and return what is."""
        axes = {axis.field: axis for axis in axes_of(experiment)}
        vary, values = self.controls["vary"], self.controls["values"]
        options = [(axis.title, name) for name, axis in axes.items()]
        field = vary.value if vary.value in axes else next(iter(axes))
        self._written = self._written and field == vary.value
        self._filling = True
        try:
            with vary.hold_sync():  # sent to the browser in one message
                # Unchanged options are left alone: the browser would rebuild the whole control.
                if list(vary.options) != options:
                    vary.options = options
                vary.value = field
            if not self._written:
                values.value = ", ".join(map(str, axes[field].values))
        finally:
            self._filling = False
        return axes[field]

    def _moved(self, written: str) -> None:
        if not self._filling:
            self._written = bool(written)
            self.show()
