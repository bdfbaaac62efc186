"""The explorer's section of charts: scaling, efficiency, cost, and what would help most."""

from dataclasses import replace
from typing import Any

import ipywidgets

from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.explorer.controls import node_counts
from lib_dlhpc.explore.explorer.device_charts import scaling_state, sensitivity_state, totals_state
from lib_dlhpc.explore.explorer.section import Section
from lib_dlhpc.prediction import Breakdown, breakdown, sensitivity

NAMES = ("scaling", "efficiency", "totals", "sensitivity")


class Charts(Section):
    """The section's state: the charts, once it was opened."""

    def __init__(self) -> None:
        super().__init__("Scaling and cost")
        self.body = ipywidgets.Box([])
        self.body.add_class("dl-charts")
        self.figures: dict[str, Any] = {}

    def _show(self, prediction: Breakdown) -> None:
        self.figures = self.figures or {name: chart(name) for name in NAMES}
        states = over_devices(prediction)
        states["sensitivity"] = sensitivity_state(sensitivity(prediction))
        for name, figure in self.figures.items():
            figure.update(*states[name])
        self.body.children = tuple(self.figures.values())


def over_devices(p: Breakdown) -> dict[str, State]:
    """Predict the run on every sensible number of nodes, the batch per replica kept: "scaling" and "totals"."""
    machine, strategy = p.experiment.machine, p.experiment.strategy
    now = {"nodes": int(strategy.nodes), "devices_per_node": int(p.experiment.devices_per_node)}
    name, other = now if int(machine.nodes) > 1 else reversed(now)
    counts = node_counts(int(getattr(machine, name)), now[name])
    several: Any = {name: counts[counts * now[other] % int(strategy.replica) == 0]}  # whole ones
    curve = breakdown(replace(p.experiment, strategy=replace(strategy, **several)), p.compute_scale)
    low, high = curve.step_time_bounds
    devices, now_at = curve.experiment.devices, float(p.experiment.devices)
    one = curve.speedup * curve.step_time
    scaling = scaling_state(
        devices, curve.speedup, one / low, one / high, (now_at, float(p.speedup))
    )
    cost = curve.time_to_train, curve.energy_to_train, curve.device_hours
    return {
        "scaling": scaling,
        "efficiency": scaling,
        "totals": totals_state(devices, *cost, now_at),
    }
