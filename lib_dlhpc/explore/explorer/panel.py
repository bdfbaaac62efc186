"""The controls on the page: groups that fold, each with a line of summary, and what does not apply with its reason.

One widget for all of them: a page with a widget for each would take seconds to open. panel.js draws it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.plain_text import Readable
from lib_dlhpc.explore.explorer.choice import Choice, experiment_of, value_at
from lib_dlhpc.explore.explorer.controls import CONTROLS, GROUPS, NAMED, Control, replicas, standing
from lib_dlhpc.explore.explorer.moves import consequences
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import count, format_plain
from lib_dlhpc.spec.units import format_quantity as show

OPEN = ("Model", "Machine", "Split")
HERE = Path(__file__).parent / "static"


class Panel(Readable, anywidget.AnyWidget):
    """The controls. state: see panel_state. moved: [serial, field, label] of the newest move in the browser."""

    _esm = HERE / "panel.js"
    _css = HERE / "panel.css"

    state = traitlets.Dict().tag(sync=True)
    moved: traitlets.List = traitlets.List().tag(sync=True)

    def plain_text(self) -> str:
        """Return the groups with their summaries."""
        return "\n".join(f"{g['name']}: {g['summary']}" for g in self.state.get("groups", []))

    def __repr__(self) -> str:
        return "Panel()"


def panel_state(
    choice: Choice, experiment: Experiment, stall: float, serial: int
) -> dict[str, Any]:
    """Return all controls as they stand. stall: s that a step waits for input. serial: of the move that is answered."""
    groups = [
        {"name": g, "summary": summary(g, experiment, stall), "open": g in OPEN} for g in GROUPS
    ]
    rows = [control_state(control, choice, experiment) for control in CONTROLS]
    return {"groups": groups, "controls": rows, "answered": serial}


def control_state(control: Control, choice: Choice, e: Experiment) -> dict[str, Any]:
    """Return one control: its options, where it stands, whether that is off its preset, and why it does not apply."""
    row: dict[str, Any] = {"field": control.field, "group": control.group, "label": control.label}
    row |= {
        "kind": control.kind,
        "help": control.help,
        "simple": control.simple,
        "off": control.off(e),
    }
    if row["off"]:
        return row
    options = control.options(e)
    value = standing(e, control.field, choice.changes.get(control.field, 1))
    at = next((k for k, (_, option) in enumerate(options) if option == value), 0)
    row |= {
        "options": [label for label, _ in options],
        "at": at,
        "changed": control.field in choice.changes,
    }
    if row["changed"]:
        start = _start(control, choice)
        row["start"] = next((label for label, option in options if option == start), str(start))
    row["illegal"] = _illegal(control, choice, e, options)
    return row


def _start(control: Control, choice: Choice) -> Any:
    base = choice.preset.experiment
    if control.field in ("strategy.devices_per_node", "machine.name"):
        return standing(base, control.field)
    return value_at(base, control.field)


def _illegal(control: Control, choice: Choice, e: Experiment, options: Any) -> dict[str, str]:
    """Return the options, by their number, that contradict the rest of the choice, and why."""
    found = {}
    if control.kind == "parts" and control.group == "Split":
        for number, (_, value) in enumerate(options):
            try:
                others = consequences(e, control.field, value)
                experiment_of(choice.with_changes({control.field: value, **others}))
            except SpecError as error:
                found[str(number)] = str(error)
    return found


def wanted(choice: Choice, field: str, label: str) -> Any:
    """Return the value that a label of a control stands for; raises SpecError where there is none."""
    e = experiment_of(choice)
    control = NAMED.get(field)
    options: Mapping[str, Any] = dict(control.options(e)) if control else {}
    if label not in options:
        raise SpecError(f"{field} = {str(label)[:60]!r}: legal: {', '.join(options) or 'nothing'}.")
    return options[label]


def summary(group: str, e: Experiment, stall: float) -> str:
    """Return a group in a few words. stall: s by which input is late in a step."""
    s = e.strategy
    if group == "Model":
        return (
            f"{format_plain(e.model.parameters / 1e9)} B parameters"
            if e.model.parameters >= 1e9
            else (f"{format_plain(e.model.parameters / 1e6)} M parameters")
        )
    if group == "Machine":
        return f"{count(e.devices, 'device')} in {count(s.nodes, 'node')}"
    if group == "Split":
        degrees = {
            "tensor": s.tensor,
            "pipeline": s.pipeline,
            "spatial": s.spatial,
            "data": replicas(e),
        }
        return (
            " × ".join(f"{name} {int(n)}" for name, n in degrees.items() if n > 1) or "one device"
        )
    if group == "Batch and optimizer":
        return f"{int(e.global_batch):,} a step, {s.optimizer}"
    if group == "Input":
        where = e.storage.tier or "in memory"
        return f"{where}, waits {show(stall, 's')} a step" if stall > 0 else f"{where}, no stall"
    return (
        "none"
        if np.isinf(e.machine.node_mtbf)
        else f"one in {show(e.machine.node_mtbf / s.nodes, 's')}"
    )
