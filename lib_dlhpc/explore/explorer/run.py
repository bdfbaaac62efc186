"""The explorer's section "Run here": real steps beside their prediction, and the calibration of this machine.

What runs ranks is imported when the section is first opened: most visitors never do.
"""

import itertools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ipywidgets

from lib_dlhpc.explore.blocks.panels import notice_html
from lib_dlhpc.explore.blocks.runner import Runner, Thread
from lib_dlhpc.explore.explorer.measured import learn, own_machine
from lib_dlhpc.explore.explorer.section import Section
from lib_dlhpc.prediction import Breakdown

if TYPE_CHECKING:
    from lib_dlhpc.explore.compare.page import RunHere

SECONDS = 15.0  # of a calibration
PARTS = 4  # programs that it starts, about
LAPTOP = "Choose Runs on this laptop above: that run fits here."


class Run(Section):
    """The section's state: the panel that runs the newest experiment, once it was opened.

    known: called after a calibration.
    """

    def __init__(self, known: Callable[[], None] = lambda: None) -> None:
        super().__init__("Run here")
        self.hint = ipywidgets.HTML()
        self.calibration = calibration(self._calibrated)
        self.panel: RunHere | None = None
        self._known = known

    def _show(self, prediction: Breakdown) -> None:
        if self.panel is None:
            from lib_dlhpc.explore.compare.page import RunHere

            self.panel = RunHere(None, own_machine(), label="Run", refuse=self.catch_up)
        self.panel.follow(prediction.experiment)
        self.hint.value = notice_html(LAPTOP) if self.panel.panel.run.disabled else ""
        self.body.children = (self.panel.widget, self.hint, self.calibration.widget)

    def _calibrated(self) -> None:
        if self.panel is not None:
            # What was predicted was for another machine.
            self.panel.machine, self.panel.experiment = own_machine(), None
        self._known()
        self.show()


def calibration(
    done: Callable[[], None],
    measured: Callable[..., dict[str, Any]] | None = None,
    thread: Thread = threading.Thread,
) -> Runner:
    """Return a button that calibrates this machine, with its progress. done: called when the machine is known.

    measured: see calibration.machine.measure_machine.
    """

    def work(runner: Runner) -> None:
        from lib_dlhpc.calibration.machine import fit_machine, measure_machine
        from lib_dlhpc.explore.blocks.ranks import stoppable
        from lib_dlhpc.spec.host import cores

        run, parts = stoppable(runner.stop), itertools.count()

        def part(*words: Any, **more: Any) -> Any:
            number = next(parts)
            share = min(number / PARTS, 0.95)
            runner.say(f"Measuring matmuls, messages and layers, part {number + 1} ...", share)
            return run(*words, **more)

        learn(fit_machine((measured or measure_machine)(min(2, cores()), SECONDS, part)))
        runner.say(_known_words())
        done()

    tooltip = f"About {SECONDS:g} s"
    return Runner("Calibrate this machine", work, _known_words(), tooltip, thread)


def _known_words() -> str:
    own = own_machine()
    if own is None or own.measured is None:
        return "This machine is not calibrated: predictions for it use the catalog's laptop."
    return f"This machine was calibrated {own.measured.date}: choose it under Machine."
