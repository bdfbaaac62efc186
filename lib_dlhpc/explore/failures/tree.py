"""The tree of versions on the page: a line a version, clicked to continue from it."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from lib_dlhpc.storage.snapshots import Version

HERE = Path(__file__).parent


class VersionTree(anywidget.AnyWidget):
    """Versions in the order of saving; `chosen` and `other` are numbers of versions, 0 is none.

    other: what was chosen before.
    """

    _esm = HERE / "static" / "version_tree.js"
    _css = HERE / "static" / "version_tree.css"

    rows: Any = traitlets.List().tag(sync=True)
    chosen = traitlets.Int(0).tag(sync=True)
    other = traitlets.Int(0).tag(sync=True)
    busy = traitlets.Bool(False).tag(sync=True)

    def __repr__(self) -> str:
        return f"VersionTree({len(self.rows)} versions)"


def tree_rows(
    versions: Iterable[Version], words: Mapping[str, str], names: Mapping[str, Iterable[str]]
) -> list[dict[str, Any]]:
    """Return what the tree shows. words: of each version, by its id; names: of branches that end there."""
    found = sorted(versions, key=lambda version: version.number)
    numbers = {version.id: version.number for version in found}
    lanes: dict[str, int] = {}
    rows = []
    for version in found:
        lane = lanes.setdefault(version.branch, len(lanes))
        ends = "".join(f" [{name}]" for name in names.get(version.id, ()))
        rows.append(
            {
                "number": version.number,
                "parent": numbers.get(version.parent, 0),
                "lane": lane,
                "words": f"{version.short}  {words[version.id]}{ends}",
            }
        )
    return rows
