"""Versions for real: a network trained here, each epoch a version; continue from any, and see what each wrote."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import numpy as np
import traitlets

from lib_dlhpc.explore.blocks.bench import Bench, View
from lib_dlhpc.explore.blocks.charts import Data, State
from lib_dlhpc.explore.blocks.panels import table_html
from lib_dlhpc.explore.blocks.runner import Runner, Thread
from lib_dlhpc.explore.blocks.workbench import verdict_html, wall_html
from lib_dlhpc.explore.failures.network import WIDTHS, Learner, Setting, Trunk
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.storage.snapshots import SnapshotStore, Version

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


MOST = 40  # versions on the page
LABELED = 14  # versions that have their bytes beside them
COLLAPSED = 0.5  # of accuracy
NOTHING_NEW = (
    "<b>Nothing new.</b> The same start and the same settings gave the same bits: these versions are there already,"
    " and nothing was written."
)


class Versions(Bench[Setting]):
    """The experiment: what is clicked in the tree is continued, and compared with what was clicked before.

    thread: in what it trains.
    """

    def __init__(self, thread: Thread = threading.Thread) -> None:
        self.trunk, self.tree, self._asked = Trunk(), VersionTree(chosen=1), View()
        self.wall, self.branches, self.differences = (ipywidgets.HTML() for _ in range(3))
        go, brief = "Train from here", "A second or less"
        self.runner = Runner(go, self.train, tooltip=brief, thread=thread, refuse=self.refuse)
        self.runner.cancel.tooltip = "Ends with this epoch"
        tooltip = "Removes all versions and their files"
        self.clear = ipywidgets.Button(description="Clear", tooltip=tooltip)
        buttons = [self.runner.run, self.runner.cancel, self.clear]
        row = ipywidgets.HBox(buttons, layout={"flex_flow": "row wrap"})
        above = [row, self.runner.said, self.wall, self.tree, self.branches]
        results = [*above, "failures_written", self.differences]
        look = "how little a version writes when little has changed."
        super().__init__(Setting(), self.ask, results, look=look)
        self.draw()
        self.compare()
        self.tree.observe(lambda _: self.compare(), ("chosen", "other"))
        self.clear.on_click(lambda _: self.begin_anew())

    def ask(self, setting: Setting) -> View:
        """Say what a click would do; while it trains, the store is the other thread's."""
        if not self.tree.busy:
            self._asked = View(asked_words(self.trunk, self.tree.chosen, setting))
        return self._asked

    def refuse(self) -> str:
        """Say why it cannot be trained, or see to it that only that is done now."""
        if len(self.trunk.store.log()) + self.setting.epochs > MOST:
            return f"More than {MOST} versions do not fit the page: clear them."
        self.clear.disabled = self.tree.busy = True
        return ""

    def train(self, runner: Runner) -> None:
        """Continue from the chosen version."""
        store = self.trunk.store
        start, before = store.version(self.tree.chosen), len(store.log())
        try:
            last = self.trunk.train(start, self.setting, runner.stop)
            runner.say(waits_words(self.trunk) if len(store.log()) > before else NOTHING_NEW)
            self.draw()
            self.choose(last.number, start.number)
        finally:
            self.clear.disabled = self.tree.busy = False
            self.show()

    def begin_anew(self) -> None:
        self.trunk.folder.remove()
        self.trunk, self.runner.said.value = Trunk(), ""
        self.draw()
        self.choose(1, 0)
        self.compare()

    def draw(self) -> None:
        self.charts["failures_written"].update(*written_view(self.trunk))
        self.branches.value = branches_html(self.trunk.store.log())
        self.tree.rows = tree_rows(self.trunk)

    def choose(self, chosen: int, other: int) -> None:
        """Mark two versions of the tree."""
        with self.tree.hold_trait_notifications():
            self.tree.other, self.tree.chosen = other, chosen

    def compare(self) -> None:
        """Show what can be said of the chosen version, and how it differs from the other."""
        self.show()
        store = self.trunk.store
        chosen, other = store.version(self.tree.chosen), self.tree.other
        fine = f"Version {chosen.number} can be continued."
        self.wall.value = wall_html(collapse_wall(store, chosen), fine)
        self.differences.value = differences_html(store, other, chosen.number) if other else ""


def last_layer_bytes() -> int:
    """Return the bytes that change when the last layer alone is trained."""
    learner = Learner()
    return int(learner.network.weights[learner.last :].nbytes)


def asked_words(trunk: Trunk, chosen: int, setting: Setting) -> str:
    """Say what a click would do."""
    start = trunk.store.version(chosen)
    on = f"on {start.branch}" if trunk.ends_at(start) else "on a new branch"
    return (
        f"A perceptron of {', '.join(map(str, WIDTHS))}, fp32, on digits. A click continues from version"
        f" {start.number} ({start.short}) {on}: {count(setting.epochs, 'epoch')}, {setting.what},"
        f" rate {setting.rate:g}."
    )


def waits_words(trunk: Trunk) -> str:
    """Say how long each version stalled training, and how long it took in the background."""
    copied, published = np.median(trunk.waits, axis=0).tolist()
    return (
        f"<b>Saved in the background.</b> Training stalled for {show(copied, 's')} to copy the state (median of"
        f" {len(trunk.waits)} versions); it was hashed, written and flushed {show(published, 's')} later."
    )


def written_view(trunk: Trunk) -> State:
    """Return the columns of the chart "failures_written": what each version wrote, beside the whole state."""
    versions = trunk.store.log()
    written = {str(version.number): float(version.written) for version in versions}
    said = {number: show(size, "B") for number, size in written.items()}
    whole, all_of_it = float(versions[0].size), sum(written.values())
    data: Data = {
        "bars": {
            "version": list(written),
            "order": list(range(len(written))),
            "written": list(written.values()),
            "label": list(said.values()) if len(said) <= LABELED else [""] * len(said),
            "details": [trunk.how.get(version.id, "") for version in versions],
        },
        "whole": {"y": [whole], "words": [f"the whole state: {show(whole, 'B')}"]},
        "room": {"y": [0.0, 1.4 * whole]},
    }
    each = ", ".join(f"{size} by version {number}" for number, size in list(said.items())[-8:])
    return data, (
        f"Written: {each}. In all {show(all_of_it, 'B')}; whole copies would be"
        f" {show(whole * len(versions), 'B')}."
    )


def branches_html(versions: Sequence[Version]) -> str:
    """Return each branch with where it began and how well it does, as a table."""
    numbers = {version.id: version.number for version in versions}
    lines = [["branch", "begins from", "versions", "newest", "accuracy there", "best so far"]]
    for name in dict.fromkeys(version.branch for version in versions):
        own = [version for version in versions if version.branch == name]
        root, best = numbers.get(own[0].parent), max(own, key=_accuracy)
        begin = f"version {root}" if root else "the first weights"
        top = f"{_accuracy(best):.1%} (version {best.number})"
        newest = [str(own[-1].number), f"{_accuracy(own[-1]):.1%}"]
        lines.append([name, begin, str(len(own)), *newest, top])
    return table_html(lines)


def collapse_wall(store: SnapshotStore, version: Version) -> str:
    """Say that a version has unlearned, and which of its ancestors to go back to; or nothing."""
    known = {each.id: each for each in store.log()}
    line = [version]
    while line[-1].parent in known:
        line.append(known[line[-1].parent])
    good = max(line, key=_accuracy)
    now, then = _accuracy(version), _accuracy(good)
    if not now < COLLAPSED < then:
        return ""
    return (
        f"Version {version.number} has unlearned: {now:.0%} accuracy, after {then:.0%} in version {good.number}. With"
        " a single checkpoint, overwritten each time, that would be lost: click it, and continue from there."
    )


def differences_html(store: SnapshotStore, first: int, second: int) -> str:
    """Return what two versions differ in, tensor by tensor, as a table."""
    lines = [["tensor", "size", "shared", "relative difference"]]
    for row in store.diff(first, second):
        shared = "all of it" if row.kind == "shared" else show(float(row.shared), "B")
        lines.append([row.name, show(float(row.size), "B"), shared, _apart(row.relative)])
    head = f"<b>Version {first} compared with {second}.</b> Shared bytes are stored once."
    return verdict_html(head) + table_html(lines)


def _accuracy(version: Version) -> float:
    return version.metrics["accuracy"]


def _apart(relative: float) -> str:
    if not np.isfinite(relative):
        return "it was 0, or is a count or text: no number"
    return f"{relative:.2%}" if relative < 10 else f"{relative:,.3g} times"


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
