"""The state of a page in its address: short, readable, versioned; a link shows the same picture.

text = encode({"preset": "goyal-2017", "strategy.nodes": 64})   # v1&preset=goyal-2017&strategy.nodes=64
found = decode(text)                                            # found.fields, found.ignored

address = Address()
address.state = text                                 # in the browser's address, and in its history
address.observe(show, "arrivals")                    # a page opened with address.arrived, or went back to it

Share has the settings of one figure: "Copy link" below its controls, and back to them where a page is opened. Its
address has what is off its first value, by the names of the settings: #v1&figure=buckets&gpus=64&bucket=1 MB.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import anywidget
import traitlets

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


VERSION = "v1"
LONGEST = 4000  # characters; browsers and mail programs carry that many
SAFE = ".:/-_,[]{}*"  # left as they are, so that an address can be read


class Arrived(NamedTuple):
    """What an address says, and in words what of it was not understood."""

    fields: dict[str, Any]
    ignored: tuple[str, ...] = ()


def encode(fields: Mapping[str, Any]) -> str:
    """Return the fields as the fragment of an address; "" where they are too long for one."""
    parts = [
        f"{quote(key, safe=SAFE)}={quote(_text(value), safe=SAFE)}" for key, value in fields.items()
    ]
    text = "&".join([VERSION, *parts])
    return text if len(text) <= LONGEST else ""


def decode(text: str) -> Arrived:
    """Return the fields of a fragment; never raises."""
    text = text.removeprefix("#")
    if not text:
        return Arrived({})
    if len(text) > LONGEST:
        return Arrived({}, (f"an address of {len(text):,} characters; the longest is {LONGEST:,}",))
    version, *parts = text.split("&")
    if version != VERSION:
        return Arrived({}, (f"an address of version {unquote(version)[:20]!r}; known: {VERSION}",))
    fields: dict[str, Any] = {}
    ignored = []
    for part in parts:
        key, equals, value = part.partition("=")
        name = unquote(key)
        if not name or not equals:
            ignored.append(repr(unquote(part)[:60]))
        elif name in fields:
            ignored.append(f"a second {name[:60]}")
        else:
            fields[name] = _value(unquote(value))
    return Arrived(fields, tuple(ignored))


def _text(value: Any) -> str:
    """Return a value as text: JSON, or the plain words where nothing else reads as them."""
    if isinstance(value, str) and _value(value) == value and isinstance(_value(value), str):
        return value
    return json.dumps(value, separators=(",", ":"))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


class Address(anywidget.AnyWidget):
    """The fragment of the browser's address; nothing is shown. In a notebook editor the address is not touched.

    state: what the address shall say; each new one is a step of the browser's history, quick ones together.
    arrived: what the address said when the page opened, or says after back and forward; arrivals counts them.
    """

    _esm = Path(__file__).parent / "static" / "address.js"

    state = traitlets.Unicode().tag(sync=True)
    arrived = traitlets.Unicode().tag(sync=True)
    arrivals = traitlets.Int().tag(sync=True)


def written(control: Any) -> Any:
    """Return where a control stands: the words of an option, as a number where they are one, or the value itself."""
    if not hasattr(control, "options"):
        return control.value
    label = str(control.label)
    return int(label) if label.isdecimal() and str(int(label)) == label else label
