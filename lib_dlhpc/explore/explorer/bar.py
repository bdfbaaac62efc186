"""The line above the explorer: presets as chips, undo and redo, pin, and everything that can be taken away."""

from pathlib import Path
from typing import Any

import anywidget
import traitlets

from lib_dlhpc.explore.explorer.presets import CHIPS, names, preset

HERE = Path(__file__).parent / "static"


class Bar(anywidget.AnyWidget):
    """The line. asked: [serial, what, of what] of the newest click; file: [serial, name, kind, text] to save.

    link: the fragment that "Copy link" puts behind the page's address; "" where the state is too long for one.
    """

    _esm = HERE / "bar.js"
    _css = HERE / "bar.css"

    state = traitlets.Dict().tag(sync=True)
    asked: traitlets.List = traitlets.List().tag(sync=True)
    file: traitlets.List = traitlets.List().tag(sync=True)
    link = traitlets.Unicode().tag(sync=True)


def bar_state(chosen: str, changed: bool, back: bool, ahead: bool, pinned: bool) -> dict[str, Any]:
    """Return what the line shows."""
    every = [(name, preset(name)) for name in names()]
    return {
        "chips": [[name, CHIPS[name], each.title] for name, each in every if name in CHIPS],
        "more": [[name, each.title] for name, each in every if name not in CHIPS],
        "chosen": chosen,
        "changed": changed,
        "back": back,
        "ahead": ahead,
        "pinned": pinned,
    }
