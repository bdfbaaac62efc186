"""Figure: a chart that stays on the page; the drawing goes over once, afterwards only columns.

The browser needs Vega (0.6 MB) to draw.  A page made by `serve.py` loads it itself, as a file that
the browser keeps.  Everywhere else (JupyterLab, Notebook, plain Voila) one hidden `Runtime` widget
carries it over, once a kernel, however many figures there are.  Nothing is fetched from elsewhere.
"""

import math
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import anywidget
import traitlets
from ipywidgets import widget_serialization

from lib_dlhpc.explore.blocks import built
from lib_dlhpc.explore.blocks.plain_text import PAGE_HAS_VEGA, Readable

HERE = Path(__file__).parent
# Every figure carries its code: without the comments.
CODE = re.sub(
    r"^ *//.*\n",
    "",
    "".join((HERE / "static" / name).read_text("utf-8") for name in ("files.js", "figure.js")),
    flags=re.MULTILINE,
)

Columns = Mapping[str, Iterable[Any]]


class Runtime(anywidget.AnyWidget):
    """The drawing library as a widget without a face; figures wait for what it defines."""

    _esm = traitlets.Unicode().tag(sync=True)

    @traitlets.default("_esm")
    def _code(self) -> str:
        code = "" if os.environ.get(PAGE_HAS_VEGA) else built.vega().read_text(encoding="utf-8")
        return code + "\nexport default {};\n"


@cache
def runtime() -> Runtime:
    """The one Runtime of this kernel."""
    return Runtime()


class Figure(Readable, anywidget.AnyWidget):
    """A Vega-Lite drawing with named datasets whose columns may change at any time.

    spec: a specification from built.compiled() or built.drawings(); its data are named and empty.
    data: dataset name -> column name -> values, all columns of a dataset equally long;
          numpy arrays are welcome, what is not finite is drawn as missing.
    summary: the chart in a sentence or two: read out to those who cannot see it, shown to all.

    A dataset "key" (label, color, opacity, hatched) is the legend of a drawing whose colors come with its data.
    A `title` in the spec becomes the caption.  With `"autosize": "none"` and four paddings the
    plotting area keeps its place while numbers change.  `usermeta.table` may list what the table
    below the chart shows: `{"bars": {"seconds": "time (s)"}}`.
    """

    _esm = CODE
    _css = HERE / "static" / "figure.css"

    spec = traitlets.Dict().tag(sync=True)
    data = traitlets.Dict().tag(sync=True)
    signals = traitlets.Dict().tag(sync=True)
    summary = traitlets.Unicode().tag(sync=True)
    serial = traitlets.Int().tag(sync=True)  # number of the newest state; what the view redraws for
    runtime = traitlets.Any().tag(sync=True, **widget_serialization)

    def __init__(
        self,
        spec: Mapping[str, Any],
        data: Mapping[str, Columns] | None = None,
        summary: str = "",
        signals: Mapping[str, Any] | None = None,
    ) -> None:
        self._legal = frozenset(spec["usermeta"]["datasets"])
        self._states = count(1)
        super().__init__(
            spec=dict(spec),
            data=self._checked(data or {}),
            summary=summary,
            signals=dict(signals or {}),
            runtime=runtime(),
        )

    def update(
        self,
        data: Mapping[str, Columns] | None = None,
        summary: str | None = None,
        signals: Mapping[str, Any] | None = None,
    ) -> None:
        """Show these columns; datasets, summary and signals that are not given stay as they are.

        Raises ValueError, and changes nothing, for an unknown dataset or columns of unequal length.
        """
        fresh = self._checked(data or {})
        with self.hold_sync():
            self.data = {**self.data, **fresh}
            self.signals = {**self.signals, **(signals or {})}
            if summary is not None:
                self.summary = summary
            self.serial = next(self._states)

    def _checked(self, data: Mapping[str, Columns]) -> dict[str, dict[str, list[Any]]]:
        for name in data:
            if name not in self._legal and name != "key":
                legal = ", ".join(sorted(self._legal)) or "none"
                raise ValueError(f"the drawing has no dataset {name!r}; it has: {legal}")
        plain = {
            name: {column: _plain(values) for column, values in columns.items()}
            for name, columns in data.items()
        }
        for name, columns in plain.items():
            lengths = {column: len(values) for column, values in columns.items()}
            if len(set(lengths.values())) > 1:
                raise ValueError(f"columns of dataset {name!r} differ in length: {lengths}")
        return plain

    @property
    def title(self) -> str:
        """The caption."""
        title = self.spec["usermeta"]["title"]
        return str(title.get("text", "") if isinstance(title, dict) else title)

    def plain_text(self) -> str:
        """Return caption and summary; "" as long as nothing is drawn."""
        title = f"{self.title}{'' if self.title.endswith('?') else '.'} " if self.title else ""
        return f"{title}{self.summary}" if self.summary else ""

    def __repr__(self) -> str:
        return f"Figure({self.title!r})"


def _plain(values: Iterable[Any]) -> list[Any]:
    """Numbers and texts that JSON can carry."""
    tolist = getattr(values, "tolist", None)
    items = tolist() if tolist else list(values)
    return [_scalar(item) for item in items]


def _scalar(item: Any) -> Any:
    if hasattr(item, "item"):  # a numpy scalar inside a list
        item = item.item()
    return None if isinstance(item, float) and not math.isfinite(item) else item
