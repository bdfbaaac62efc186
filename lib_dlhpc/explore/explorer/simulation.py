"""The explorer's section "Simulate this step": the simulation beside the prediction, and its timeline.

Nothing is simulated before the section is opened. Then it follows the controls where that is quick, once
they rest; where it is not, what is shown is marked as of other settings until it is simulated again.
"""

from time import perf_counter
from typing import Any

import ipywidgets

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.blocks.panels import notice_html, problem_html
from lib_dlhpc.explore.blocks.style import Labels
from lib_dlhpc.explore.explorer.limits import quick, too_much
from lib_dlhpc.explore.explorer.simulated import Bands, gantt_of, simulate_step, simulated_html
from lib_dlhpc.explore.explorer.soon import REST, Soon
from lib_dlhpc.prediction import Breakdown
from lib_dlhpc.simulation.watchdog import Cancelled, DeadlockError

PATIENCE = 10.0  # s after which it is given up: a page answers to nothing meanwhile
STEPS = (1, 2, 4, 8, 16)
STALE = "dlhpc-stale"


class Simulation:
    """The section's state: the newest prediction, and what was simulated of it or of an older one."""

    def __init__(self) -> None:
        self.opened = ipywidgets.ToggleButton(
            description="Simulate this step", layout={"width": "auto"}
        )
        self.controls = _controls()
        self.again = ipywidgets.Button(description="Simulate again", icon="play")
        self.said, self.table = ipywidgets.HTML(), ipywidgets.HTML()
        self.figure = chart("gantt")
        self._prediction: Breakdown | None = None
        self._bands: Bands = {}
        self._seed = -1  # of the experiment, when it was last seen
        self._following = False
        self._soon = Soon(REST)
        labels = ipywidgets.VBox([Labels()])
        labels.add_class("dlhpc-hidden")
        bar = ipywidgets.Box([*self.controls.values(), self.again, labels])
        bar.add_class("dlhpc-play-controls")
        self._result = ipywidgets.VBox([self.table, self.figure])
        # What the open section shows; the result is there as soon as something was simulated.
        self._inside: tuple[Any, ...] = (bar, self.said)
        self.body = ipywidgets.VBox([])
        self.opened.observe(self._toggled, "value")
        self.again.on_click(lambda _: self.simulate())
        for control in self.controls.values():
            control.observe(self._moved, "value")

    def follow(self, prediction: Breakdown, bands: Bands | None = None) -> None:
        """Take over another experiment: simulate it if the section is open and that is quick.

        bands: (low, high) s that its step and terms may take, by name, where that is known.
        """
        self._prediction, self._bands = prediction, bands or {}
        e, seed = prediction.experiment, self.controls["seed"]
        self._following = True
        try:
            if e.run.seed != self._seed:
                seed.value = self._seed = e.run.seed
            still = not e.machine.jitter
            if seed.disabled != still:
                seed.disabled = still
        finally:
            self._following = False
        if not self.opened.value:
            return
        self._mark(True)
        self._soon(self.simulate if quick(e, *self._how) else self._say_stale)

    def simulate(self) -> None:
        """Simulate the newest experiment and show it, or say why not."""
        self._soon.cancel()
        if self._prediction is None or not self.opened.value:
            return
        fidelity, steps = self._how
        problem = too_much(self._prediction.experiment, fidelity, steps)
        if problem:
            self._say(problem_html(problem))
            return
        end = perf_counter() + PATIENCE
        try:
            found = simulate_step(
                self._prediction,
                fidelity,
                self.controls["seed"].value,
                steps,
                lambda *_: perf_counter() < end,
                self._bands,
            )
        except Cancelled:
            words = f"Given up after {PATIENCE:g} s. Choose fewer nodes or fidelity rounds."
            self._say(problem_html(words))
        except (SpecError, DeadlockError) as error:
            self._say(problem_html(str(error)))
        else:
            self.table.value = simulated_html(found)
            self.figure.update(**gantt_of(found))
            self.said.value = ""
            self._mark(False)
            if self._result not in self._inside:
                self._inside += (self._result,)
                self.body.children = self._inside

    @property
    def _how(self) -> tuple[str, int]:
        return self.controls["fidelity"].value, self.controls["steps"].value

    def _toggled(self, _: Any) -> None:
        self.simulate()
        self.body.children = self._inside if self.opened.value else ()

    def _moved(self, _: Any) -> None:
        if not self._following:
            self._mark(True)
            self._soon(self.simulate)

    def _say_stale(self) -> None:
        assert self._prediction is not None
        problem = too_much(self._prediction.experiment, *self._how)
        stale = notice_html("Of other settings. Press Simulate again for the present ones.")
        self._say(problem_html(problem) or stale)

    def _say(self, words: str) -> None:
        self.said.value = words
        self._mark(True)

    def _mark(self, stale: bool) -> None:
        marked = STALE in self._result._dom_classes
        if stale != marked:
            (self._result.add_class if stale else self._result.remove_class)(STALE)


def _controls() -> dict[str, Any]:
    style = {"description_width": "auto"}
    return {
        "fidelity": ipywidgets.Dropdown(
            description="Fidelity",
            tooltip="rounds: messages of two ranks in order, no contention beyond the NICs;"
            " events: messages share the links",
            options=[("rounds", "rounds"), ("events (links are shared)", "events")],
            style=style,
        ),
        "seed": ipywidgets.BoundedIntText(
            description="Seed",
            tooltip="Of the jitter of the ranks",
            min=0,
            max=2**31 - 1,
            style=style,
        ),
        "steps": ipywidgets.SelectionSlider(
            description="Steps", tooltip="Simulated one after another", options=STEPS, style=style
        ),
    }
