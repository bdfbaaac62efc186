"""The settings of one figure in a link: "Copy link" below its controls, and back to them where a page is opened.

The address has what is off its first value, by the names of the settings: #v1&figure=buckets&gpus=64&bucket=1 MB.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from lib_dlhpc.explore.blocks.address import decode, encode

FIGURE = "figure"  # the field that says of which figure of a page the others are


class Share(anywidget.AnyWidget):
    """The button. figure: its name on the page; link: the fragment that shows what the controls show.

    arrived: the fragment of an address that is of this figure, from the browser; said: what of it was not understood.
    """

    _esm = Path(__file__).parent / "static" / "share.js"

    figure = traitlets.Unicode().tag(sync=True)
    link = traitlets.Unicode().tag(sync=True)
    arrived = traitlets.Unicode().tag(sync=True)
    said = traitlets.Unicode().tag(sync=True)

    def __init__(self, figure: str, controls: Mapping[str, Any]) -> None:
        self._controls = {name: each for name, each in controls.items() if hasattr(each, "value")}
        self._first = {name: written(each) for name, each in self._controls.items()}
        super().__init__(figure=figure, link=encode({FIGURE: figure}))
        for control in self._controls.values():
            control.observe(lambda _: self._write(), "value")
        self.observe(lambda event: self.restore(event["new"]), "arrived")

    def restore(self, fragment: str) -> None:
        """Set the controls as a fragment says; what it does not name stands at its first value."""
        found = decode(fragment)
        wanted = {**self._first, **found.fields}
        ignored = [*found.ignored]
        for name, value in wanted.items():
            if name != FIGURE and not self._set(name, value):
                ignored.append(f"{name} = {str(value)[:40]}")
        self.said = f"Not understood in the address: {'; '.join(ignored)}." if ignored else ""

    def _set(self, name: str, value: Any) -> bool:
        """Set a control to what `written` makes of one of its values; return whether there is one."""
        control = self._controls.get(name)
        if control is None:
            return False
        if hasattr(control, "options"):
            labels = [label for label, _ in control.options]
            if str(value) not in labels:
                return False
            control.label = str(value)
            return True
        try:
            control.value = value
        except traitlets.TraitError:
            return False
        return True

    def _write(self) -> None:
        now = {name: written(each) for name, each in self._controls.items()}
        off = {name: value for name, value in now.items() if value != self._first[name]}
        self.link = encode({FIGURE: self.figure, **off})


def written(control: Any) -> Any:
    """Return where a control stands: the words of an option, as a number where they are one, or the value itself."""
    if not hasattr(control, "options"):
        return control.value
    label = str(control.label)
    return int(label) if label.isdecimal() and str(int(label)) == label else label
