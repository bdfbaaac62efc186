"""The explorer's section "Run here": real steps beside their prediction, and the calibration of this machine.

What runs ranks is imported when the section is first opened: most visitors never do.
"""

import itertools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ipywidgets

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.panels import notice_html, problem_html
from lib_dlhpc.explore.blocks.workbench import verdict_html
from lib_dlhpc.explore.explorer.measured import learn, own_machine
from lib_dlhpc.spec.experiment import Experiment

if TYPE_CHECKING:
    from lib_dlhpc.explore.compare.page import RunHere

SECONDS = 15.0  # of a calibration
PARTS = 4  # programs that it starts, about
LAPTOP = "Choose Runs on this laptop above: that run fits here."


class Run:
    """The section's state: the newest experiment, and the panel that runs it, once it was opened.

    known: called after a calibration.
    """

    def __init__(self, known: Callable[[], None] = lambda: None) -> None:
        self.opened = ipywidgets.ToggleButton(description="Run here", layout={"width": "auto"})
        self.body = ipywidgets.VBox([])
        self.hint = ipywidgets.HTML()
        self.calibration = Calibration(self._calibrated)
        self.panel: RunHere | None = None
        self._experiment: Experiment | None = None
        self._known = known
        self.opened.observe(self._toggled, "value")

    def follow(self, experiment: Experiment) -> None:
        """Take over another experiment."""
        self._experiment = experiment
        if self.panel is not None and self.opened.value:
            self.panel.follow(experiment)
            self.hint.value = notice_html(LAPTOP) if self.panel.panel.run.disabled else ""

    def _toggled(self, _: Any) -> None:
        if not self.opened.value:
            self.body.children = ()
            return
        if self.panel is None:
            from lib_dlhpc.explore.compare.page import RunHere

            self.panel = RunHere(None, own_machine(), label="Run")
        if self._experiment is not None:
            self.follow(self._experiment)
        self.body.children = (self.hint, self.panel.widget, self.calibration.widget)

    def _calibrated(self) -> None:
        if self.panel is not None:
            self.panel.machine, self.panel.experiment = (
                own_machine(),
                None,
            )  # it was predicted for another
        self._known()
        if self._experiment is not None:
            self.follow(self._experiment)


class Calibration:
    """Buttons Calibrate and Cancel, and how far it is. done: called when this machine is known.

    measured: see calibration.machine.measure_machine; thread: in what it is done.
    """

    def __init__(
        self,
        done: Callable[[], None],
        measured: Callable[..., dict[str, Any]] | None = None,
        thread: Callable[..., Any] = threading.Thread,
    ) -> None:
        self._done, self._measured, self._thread = done, measured, thread
        self.start = ipywidgets.Button(
            description="Calibrate this machine", tooltip=f"About {SECONDS:g} s"
        )
        self.start.layout.width = "auto"
        self.cancel = ipywidgets.Button(
            description="Cancel", tooltip="Ends all ranks", disabled=True
        )
        self.bar = ipywidgets.FloatProgress(max=1.0, description="Measured")
        self.bar.layout.visibility = "hidden"
        self.said = ipywidgets.HTML(verdict_html(_known_words()))
        self._stop = threading.Event()
        self.widget = ipywidgets.VBox(
            [ipywidgets.HBox([self.start, self.cancel, self.bar]), self.said]
        )
        self.start.on_click(lambda _: self._clicked())
        self.cancel.on_click(lambda _: self._stop.set())

    def _clicked(self) -> None:
        self.start.disabled, self.cancel.disabled = True, False
        self.bar.value, self.bar.layout.visibility = 0.0, "visible"
        self._stop.clear()
        self._thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        from lib_dlhpc.calibration.machine import fit_machine, measure_machine
        from lib_dlhpc.explore.one_step.ranks import stoppable
        from lib_dlhpc.launch.local import JobError
        from lib_dlhpc.spec.host import cores

        run, parts = stoppable(self._stop), itertools.count(1)

        def part(*words: Any, **more: Any) -> Any:
            number = next(parts)
            self.said.value = verdict_html(
                f"Measuring products, messages and layers, part {number} ..."
            )
            self.bar.value = min((number - 1) / PARTS, 0.95)
            return run(*words, **more)

        try:
            measure = self._measured or measure_machine
            learn(fit_machine(measure(min(2, cores()), SECONDS, part)))
            self.said.value = verdict_html(_known_words())
            self._done()
        except (JobError, SpecError) as reason:
            cancelled = self._stop.is_set()
            self.said.value = verdict_html("Cancelled.") if cancelled else problem_html(str(reason))
        finally:
            self.bar.layout.visibility = "hidden"
            self.start.disabled, self.cancel.disabled = False, True


def _known_words() -> str:
    own = own_machine()
    if own is None or own.measured is None:
        return (
            "This machine is not calibrated: predictions of it are those of the catalog's laptop."
        )
    return f"This machine was calibrated {own.measured.date}: choose it under Machine."
