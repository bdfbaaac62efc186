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
from lib_dlhpc.explore.explorer import controls
from lib_dlhpc.explore.explorer.choice import Choice, experiment_of
from lib_dlhpc.explore.explorer.labels import labeled
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


def panel_state(choice: Choice, e: Experiment, stall: float, serial: int) -> dict[str, Any]:
    """Return all controls as they stand. stall: s that a step waits for input. serial: of the move that is answered."""
    said = summaries(e, stall)
    groups = [{"name": g, "summary": said[g], "open": g in OPEN} for g in controls.GROUPS]
    rows = [control_state(control, choice, e) for control in controls.CONTROLS]
    return {"groups": groups, "controls": rows, "answered": serial}


def control_state(control: controls.Control, choice: Choice, e: Experiment) -> dict[str, Any]:
    """Return one control: its options, where it stands, whether that is off its preset, and why it does not apply."""
    field, off = control.field, control.off(e)
    row = {name: getattr(control, name) for name in ("field", "group", "label", "kind", "help")}
    row |= {"simple": field in controls.SIMPLE, "off": off}
    if off:
        return row
    options, changed = control.options(e), field in choice.changes
    labels = [label for label, _ in options]
    at = _place(options, controls.standing(e, field, choice.changes.get(field, 1)))
    row |= {"options": labels, "at": at or 0, "changed": changed}
    if changed:
        start = controls.standing(choice.preset.experiment, field)
        place = _place(options, start)
        row["start"] = str(start) if place is None else labels[place]
    return row | {"illegal": _illegal(control, choice, e, options)}


def _place(options: controls.Options, value: Any) -> int | None:
    return next((k for k, (_, option) in enumerate(options) if option == value), None)


def _illegal(
    control: controls.Control, choice: Choice, e: Experiment, options: controls.Options
) -> dict[str, str]:
    """Return the options, by their number, that contradict the rest of the choice, and why."""
    found = {}
    if control.kind == "parts" and control.group == "Split":
        for number, (_, value) in enumerate(options):
            try:
                others = consequences(e, control.field, value)
                experiment_of(choice.with_changes({control.field: value, **others}))
            except SpecError as error:
                found[str(number)] = labeled(str(error))
    return found


def wanted(choice: Choice, field: str, label: str) -> Any:
    """Return the value that a label of a control stands for; raises SpecError where there is none."""
    control = controls.NAMED.get(field)
    options: Mapping[str, Any] = dict(control.options(experiment_of(choice))) if control else {}
    if label not in options:
        raise SpecError(f"{field} = {str(label)[:60]!r}: legal: {', '.join(options) or 'nothing'}.")
    return options[label]


def _counted(parameters: float) -> str:
    """Return a number of parameters as people write it: 6,090, 25.6 M, 175 B."""
    for size, letter in ((1e9, "B"), (1e6, "M")):
        if parameters >= size:
            return f"{format_plain(parameters / size)} {letter}"
    return f"{parameters:,.0f}"


def summaries(e: Experiment, stall: float) -> dict[str, str]:
    """Return each group in a few words. stall: s by which input is late in a step."""
    s = e.strategy
    degrees = {name: getattr(s, name) for name in ("tensor", "pipeline", "spatial", "context")}
    split = [
        f"{name} {int(n)}" for name, n in {**degrees, "data": controls.replicas(e)}.items() if n > 1
    ]
    late = f"waits {show(stall, 's')} per step" if stall > 0 else "no stall"
    fails, mtbf = not np.isinf(e.machine.node_mtbf), e.machine.node_mtbf / s.nodes
    return {
        "Model": f"{_counted(float(e.model.parameters))} parameters",
        "Machine": f"{count(e.devices, 'device')} in {count(s.nodes, 'node')}",
        "Split": " × ".join(split) or "one device",
        "Batch and optimizer": f"{int(e.global_batch):,} per step, {s.optimizer}",
        "Input": f"{e.storage.tier or 'in memory'}, {late}",
        "Failures": f"one in {show(mtbf, 's')}" if fails else "none",
    }
