"""Page object of a lesson's experiment, without a browser: controls, buttons, results."""

import json
import re
from collections.abc import Container, Iterable
from typing import Any

from lib_dlhpc.explore.blocks import charts
from lib_dlhpc.explore.blocks.built import dataset_names
from lib_dlhpc.explore.blocks.charts import State
from lib_dlhpc.explore.blocks.drawing import all_drawings
from lib_dlhpc.explore.blocks.figure import Figure

# A count of one with the plural.
ONES = re.compile(
    r"(?<![\d.,\w])1 (GPUs|nodes|ranks|devices|stages|microbatches|workers|updates|replicas|samples|spares)\b"
)


class Now:
    """A thread that runs synchronously."""

    def __init__(self, target: Any, args: tuple[Any, ...] = (), daemon: bool = True) -> None:
        self.start = lambda: target(*args)


def controls(page: Any) -> dict[str, Any]:
    """Return the controls of an experiment by their unique labels."""
    found = [c for c in page.children[0].children if hasattr(c, "options")]
    by_label = {control.description: control for control in found}
    assert len(by_label) == len(found)
    return by_label


def button(widget: Any, name: str) -> Any:
    """Return the button of that name, in the widget or anywhere inside it; None if there is none."""
    for child in getattr(widget, "children", ()):
        if getattr(child, "description", "") == name:
            return child
        if found := button(child, name):
            return found
    return None


def click(page: Any, name: str) -> Any:
    """Click the button of that name and return it."""
    found = button(page, name)
    found.click()
    return found


def words(widget: Any) -> str:
    """Return all text of a widget and of those inside it, with the summaries of its figures."""
    own = str(getattr(widget, "value", "")) + str(getattr(widget, "summary", ""))
    return own + "".join(words(child) for child in getattr(widget, "children", ()))


def result_text(page: Any) -> str:
    """Return all text of an experiment's results."""
    return words(page.children[1])


def shown(page: Any) -> str:
    """Return all that the results of an experiment show: text, and what figures draw."""
    results = page.children[1].children
    return json.dumps(
        [[w.data, w.summary] if isinstance(w, Figure) else getattr(w, "value", "") for w in results]
    )


def drawn(page: Any) -> str:
    """Return what the figures of an experiment draw: the columns and signals that their drawings name."""
    figures = [each for each in page.children[1].children if isinstance(each, Figure)]
    return json.dumps([[_read(each.data, each), each.signals] for each in figures])


def _read(data: dict[str, Any], figure: Figure) -> dict[str, Any]:
    """Return the columns of each dataset that occur in a drawing, which is more than its table."""
    drawing = {key: value for key, value in figure.spec.items() if key != "usermeta"}
    named = {*re.findall(r"\w+", json.dumps(drawing, ensure_ascii=False))}
    return {
        name: {column: values for column, values in columns.items() if column in named}
        for name, columns in data.items()
    }


def each_position_shows_its_own(page: Any, but: str = "", worded: Container[str] = ()) -> None:
    """Assert that no two positions of a control show the same, the other controls where they are; `but` one control.

    Nor does any position count one of something in the plural. Each control also moves a drawing, if there is one,
    except `worded`, which may move words alone.
    """
    for control in (each for label, each in controls(page).items() if label != but):
        home, seen, drawings = control.index, {shown(page)}, {drawn(page)}
        for position in {*range(len(control.options))} - {home}:
            control.index = position
            seen.add(shown(page))
            assert not ONES.search(words(page)), (control.description, position)
            drawings.add(drawn(page))
        control.index = home
        assert len(seen) == len(control.options), control.description
        still = len(drawings) == 1 and drawings != {"[]"}
        assert not still or control.description in worded, control.description


def fields(spec: Any) -> set[str]:
    """Return the fields that the encodings of a drawing read."""
    if isinstance(spec, dict):
        own = {spec["field"]} if isinstance(spec.get("field"), str) else set()
        return own.union(*(fields(value) for key, value in spec.items() if key != "usermeta"))
    return set().union(*map(fields, spec)) if isinstance(spec, list) else set()


def fills(name: str, state: State, derived: Iterable[str] = ()) -> None:
    """Assert that a state has every dataset and field of its drawing, but for those that the drawing derives."""
    spec, (data, summary) = all_drawings()[name](), state
    assert dataset_names(spec) == set(data) - {"key"}
    assert fields(spec) - set(derived) <= {c for columns in data.values() for c in columns}
    table = {(d, c) for d, columns in spec["usermeta"]["table"].items() for c in columns}
    assert table <= {(d, c) for d, columns in data.items() for c in columns}
    assert summary.endswith(".")
    json.dumps(charts.chart(name, data, summary).get_state(["data"]), allow_nan=False)
