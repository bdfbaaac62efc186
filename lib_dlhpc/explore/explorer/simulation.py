"""The explorer's section "Simulate this step": the simulation beside the prediction, and its timeline.

It follows the controls where that is quick; where it is not, what is shown is marked as of other settings until it is
simulated again.
"""

from time import perf_counter
from typing import Any

import ipywidgets

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.blocks.panels import notice_html, problem_html
from lib_dlhpc.explore.explorer.labels import labeled
from lib_dlhpc.explore.explorer.limits import quick, too_much
from lib_dlhpc.explore.explorer.section import Bands, Section, control_bar
from lib_dlhpc.explore.explorer.simulated import gantt_of, simulate_step, simulated_html
from lib_dlhpc.prediction import Breakdown
from lib_dlhpc.simulation import Cancelled, DeadlockError

PATIENCE = 10.0  # s after which it is given up: a page answers to nothing meanwhile
STEPS = (1, 2, 4, 8, 16)
STALE = "dlhpc-stale"
FIDELITY = "rounds: messages between two ranks stay in order and contend only at NICs; events: messages share links"


class Simulation(Section):
    """The section's state: what was simulated of the newest prediction, or of an older one."""

    def __init__(self) -> None:
        super().__init__("Simulate this step")
        self.controls = _controls()
        self.again = ipywidgets.Button(description="Simulate again", icon="play")
        self.said, self.table = ipywidgets.HTML(), ipywidgets.HTML()
        self.figure = chart("gantt")
        self._seed = -1  # of the experiment, when it was last seen
        self._following = False
        self._result = ipywidgets.VBox([self.table, self.figure])
        # What the open section shows; the result is there as soon as something was simulated.
        self._inside = [control_bar(*self.controls.values(), self.again), self.said]
        self.again.on_click(lambda _: self.show())
        for control in self.controls.values():
            control.observe(self._moved, "value")

    def follow(self, prediction: Breakdown, bands: Bands | None = None) -> None:
        """Take over another prediction: simulate it if the section is open and that is quick."""
        self.newest, self.bands = prediction, bands or {}
        e, seed = prediction.experiment, self.controls["seed"]
        self._following = True
        try:
            if e.run.seed != self._seed:
                seed.value = self._seed = e.run.seed
            seed.disabled = not e.machine.jitter
        finally:
            self._following = False
        if self.opened.value:
            self._mark(True)
            self.soon(self.show if quick(e, *self._how) else self._say_stale)

    def _show(self, prediction: Breakdown) -> None:
        """Simulate the experiment and show it, or say why not."""
        self.body.children = self._inside
        fidelity, steps = self._how
        end = perf_counter() + PATIENCE
        problem = too_much(prediction.experiment, fidelity, steps)
        try:
            if problem:
                raise SpecError(problem)
            found = simulate_step(
                prediction,
                fidelity,
                self.controls["seed"].value,
                steps,
                lambda *_: perf_counter() < end,
                self.bands,
            )
        except Cancelled:
            words = f"Given up after {PATIENCE:g} s. Choose fewer nodes or fidelity rounds."
            self._say(problem_html(words))
        except (SpecError, DeadlockError) as error:
            self._say(problem_html(labeled(str(error))))
        else:
            self.table.value = simulated_html(found)
            self.figure.update(**gantt_of(found))
            self.said.value = ""
            self._mark(False)
            self._inside[2:] = [self._result]
            self.body.children = self._inside

    @property
    def _how(self) -> tuple[str, int]:
        return self.controls["fidelity"].value, self.controls["steps"].value

    def _moved(self, _: Any) -> None:
        if not self._following:
            self._mark(True)
            self.soon(self.show)

    def _say_stale(self) -> None:
        assert self.newest is not None
        problem = too_much(self.newest.experiment, *self._how)
        stale = notice_html(
            "This is for other settings. Press Simulate again for the current ones."
        )
        self._say(problem_html(problem) or stale)

    def _say(self, words: str) -> None:
        self.said.value = words
        self._mark(True)

    def _mark(self, stale: bool) -> None:
        (self._result.add_class if stale else self._result.remove_class)(STALE)


def _controls() -> dict[str, Any]:
    style = {"description_width": "auto"}
    fidelities = [("rounds", "rounds"), ("events (links are shared)", "events")]
    return {
        "fidelity": ipywidgets.Dropdown(
            description="Fidelity", tooltip=FIDELITY, options=fidelities, style=style
        ),
        "seed": ipywidgets.BoundedIntText(
            description="Seed", tooltip="Of the jitter of the ranks", max=2**31 - 1, style=style
        ),
        "steps": ipywidgets.SelectionSlider(
            description="Steps", tooltip="Simulated one after another", options=STEPS, style=style
        ),
    }
