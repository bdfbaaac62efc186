"""The tree of versions on the page: a line a version, clicked to continue from it."""

from pathlib import Path
from typing import Any

import anywidget
import traitlets

from lib_dlhpc.explore.failures.network import Trunk

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


def tree_rows(trunk: Trunk) -> list[dict[str, Any]]:
    """Return what the tree shows: each version with its parent, the lane of its branch, and what it is."""
    versions, branches = trunk.store.log(), trunk.store.branches
    numbers = {version.id: version.number for version in versions}
    lanes = list(dict.fromkeys(version.branch for version in versions))
    ends = {name: branches.get(name) for name in branches.names()}
    rows = []
    for version in versions:
        accuracy = f"{version.metrics['accuracy']:.1%} accuracy"
        what = f"{accuracy}, step {version.step}, {trunk.how.get(version.id, '')}"
        here = "".join(f" [{name}]" for name, end in ends.items() if end == version.id)
        rows.append(
            {
                "number": version.number,
                "parent": numbers.get(version.parent, 0),
                "lane": lanes.index(version.branch),
                "words": f"{version.short}  {what}{here}",
            }
        )
    return rows
