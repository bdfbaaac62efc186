"""An experiment of a lesson on the page: its controls on one side, what follows from them on the other."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import ipywidgets

from lib_dlhpc.explore.blocks.address import Share
from lib_dlhpc.explore.blocks.panels import problem_html
from lib_dlhpc.explore.blocks.style import PAGE_STYLE, Labels

LONG = 24  # characters; a list beside its label shows no more
_STYLE = {"description_width": "7.5em"}


@cache
def _full() -> ipywidgets.Layout:
    """Return the layout that all controls share; made when it is needed, since a widget needs a kernel."""
    return ipywidgets.Layout(width="auto")


def slider(label: str, tooltip: str, options: Iterable[tuple[str, Any]], value: Any) -> Any:
    """Return a slider over `options` (text, value)."""
    return _chosen(ipywidgets.SelectionSlider, label, tooltip, options, value)


def dropdown(label: str, tooltip: str, options: Iterable[tuple[str, Any]], value: Any) -> Any:
    """Return a list to choose from; page.css gives one with long names a row of its own."""
    listed = list(options)
    found = _chosen(ipywidgets.Dropdown, label, tooltip, listed, value)
    if max(len(text) for text, _ in listed) > LONG:
        found.add_class("dlhpc-long")
    return found


def _chosen(kind: Any, label: str, tooltip: str, options: Iterable[Any], value: Any) -> Any:
    look = {"tooltip": tooltip, "layout": _full(), "style": _STYLE}
    return kind(description=label, options=list(options), value=value, **look)


def workbench(
    controls: Mapping[str, Any], results: Iterable[Any], show: Any, note: str = "", figure: str = ""
) -> ipywidgets.Box:
    """Lay controls beside results; `show()` is called now and whenever a control moves.

    note: one sentence of what to look for, shown below the results. figure: the name that a link has for them, that of
    the file that defines `show` if there is no other.
    """
    look = ipywidgets.HTML(f"<p><b>Look for</b> {note}</p>" if note else "")
    look.add_class("dlhpc-note")
    unseen = ipywidgets.VBox([ipywidgets.HTML(PAGE_STYLE), Labels()])
    unseen.add_class("dlhpc-hidden")
    share = Share(figure or show.__module__.rpartition(".")[2], controls)
    side = ipywidgets.VBox([*controls.values(), *([share] if controls else []), unseen])
    side.add_class("dlhpc-controls")
    main = ipywidgets.VBox([*results, look])
    main.add_class("dlhpc-results")
    for control in controls.values():
        control.observe(lambda _: show(), "value")
    show()
    page = ipywidgets.Box([side, main])
    page.add_class("dlhpc-page")
    return page


def wall_html(wall: str, fine: str) -> str:
    """Return the limit that is hit, or the quiet line that says there is none."""
    return (
        problem_html(f"✕ Wall. {wall}")
        if wall
        else (f'<div class="dlhpc-walls" role="status"><p>✓ {fine}</p></div>')
    )


def verdict_html(text: str) -> str:
    """Return what an experiment comes to, in HTML; a screen reader reads it out when it changes."""
    return f'<p class="dlhpc-verdict" role="status">{text}</p>'
