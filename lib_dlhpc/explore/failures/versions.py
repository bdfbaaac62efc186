"""Versions for real: a network trained here, each epoch a version; continue from any, and see what each wrote.

versions_here()    the experiment: the tree, what each version wrote, what two differ in
"""

import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import ipywidgets
import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.charts import State, chart
from lib_dlhpc.explore.blocks.folder import Folder
from lib_dlhpc.explore.blocks.panels import problem_html, table_html
from lib_dlhpc.explore.blocks.workbench import dropdown, slider, verdict_html, wall_html, workbench
from lib_dlhpc.explore.failures.charts import written_state
from lib_dlhpc.explore.failures.network import WHAT, WIDTHS, Learner
from lib_dlhpc.explore.failures.tree import VersionTree, tree_rows
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.storage.snapshots import SnapshotStore, Version
from lib_dlhpc.storage.snapshots.diff import Difference

RATES, EPOCHS = (0.02, 0.1, 0.5, 2.0), (1, 2, 4)
MOST = 40  # versions on the page
COLLAPSED = 0.5  # of accuracy
NOTHING_NEW = (
    "<b>Nothing new.</b> The same start and the same settings gave the same bits: these versions are there already,"
    " and nothing was written."
)


class Setting(NamedTuple):
    """What the controls say."""

    what: str = WHAT[0]
    rate: float = 0.1
    epochs: int = 4


class Trunk:
    """A store in a folder that goes with it, and what was trained into it."""

    def __init__(self) -> None:
        self.folder = Folder("versions")
        self.store = SnapshotStore(self.folder.path / "store")
        self.learner = Learner()
        self.how: dict[str, str] = {}  # by a version's id
        self.waits: list[tuple[float, float]] = []  # s of copying, s until it was published
        self._going: list[Any] = []
        self._keep("the first weights", "main")

    def train(self, start: Version, setting: Setting, stop: threading.Event) -> Version:
        """Train from a version on, a version for each epoch; return the last. What is saved when `stop` is set stays.

        From the newest of a branch that branch continues, from any other a new one begins.
        """
        newest = self.store.newest(start.branch)
        fresh = newest is None or newest.id != start.id
        branch = self._new_name() if fresh else start.branch
        self.learner.take_up(self.store.load(start))
        parent: Version | None = start
        for _ in range(setting.epochs):
            if stop.is_set():
                break
            loss = self.learner.epoch(setting.what, setting.rate)
            how = f"{setting.what}, rate {setting.rate:g}"
            self._keep(how, branch, loss, parent)
            parent = None
        self._settle()
        return self.store.newest(branch) or start

    def _keep(
        self, how: str, branch: str, loss: float | None = None, parent: Version | None = None
    ) -> None:
        """Save the state behind the next epoch."""
        self._settle()
        metrics = {"accuracy": self.learner.accuracy(), "loss": loss}
        if loss is not None and not np.isfinite(loss):
            metrics["loss"] = None
        about: dict[str, Any] = {"step": self.learner.steps, "metrics": metrics}
        saving = self.store.save_async(self.learner.state(), parent=parent, branch=branch, **about)
        self._going = [saving, how]
        if loss is None:
            self._settle()

    def _settle(self) -> None:
        if self._going:
            (saving, how), self._going = self._going, []
            self.how[saving.wait().id] = how
            self.waits.append((saving.copied, saving.ended - saving.begun))

    def _new_name(self) -> str:
        return f"branch-{len(list(self.store.branches.names())) + 1}"


def versions_here(thread: Callable[..., Any] = threading.Thread) -> ipywidgets.Box:
    """Return controls, the tree, what each version wrote, branches and differences. thread: in what it trains."""
    controls = {
        "what": dropdown(
            "Train", "What is not trained does not change", [(w, w) for w in WHAT], WHAT[0]
        ),
        "rate": slider("Rate", "Of plain SGD", [(f"{r:g}", r) for r in RATES], 0.1),
        "epochs": slider("Epochs", "Each of them is a version", [(str(n), n) for n in EPOCHS], 4),
    }
    train_it = ipywidgets.Button(
        description="Train from here",
        button_style="primary",
        tooltip="A second or less",
        layout={"width": "auto"},
    )
    cancel = ipywidgets.Button(description="Cancel", tooltip="Ends with this epoch", disabled=True)
    clear = ipywidgets.Button(description="Clear", tooltip="Removes all versions and their files")
    asked, said, wall = ipywidgets.HTML(), ipywidgets.HTML(), ipywidgets.HTML()
    branches, differences = ipywidgets.HTML(), ipywidgets.HTML()
    tree, written = VersionTree(), chart("failures_written")
    stop, held = threading.Event(), [Trunk()]

    def setting() -> Setting:
        return Setting(**{name: control.value for name, control in controls.items()})

    def ask() -> None:
        if tree.busy:  # the store is the other thread's
            return
        asked.value = verdict_html(asked_words(held[0].store, tree.chosen, setting()))

    def draw() -> None:
        trunk = held[0]
        versions = trunk.store.log()
        written.update(*written_view(trunk))
        branches.value = branches_html(trunk)
        words = {v.id: version_words(v, trunk.how.get(v.id, "")) for v in versions}
        tree.rows = tree_rows(versions, words, ends_of(trunk.store))

    def chose(_: Any = None) -> None:
        ask()
        store = held[0].store
        start = store.version(tree.chosen)
        wall.value = wall_html(
            collapse_wall(store, start), f"Version {start.number} can be continued."
        )
        differences.value = ""
        if tree.other and tree.chosen:
            a, b = store.version(tree.other), store.version(tree.chosen)
            differences.value = differences_html(a, b, store.diff(a, b))

    def work(chosen: Setting, start: Version) -> None:
        try:
            before = len(held[0].store.log())
            last = held[0].train(start, chosen, stop)
            new = len(held[0].store.log()) - before
            said.value = verdict_html(waits_words(held[0]) if new else NOTHING_NEW)
            draw()
            with tree.hold_trait_notifications():
                tree.other, tree.chosen = start.number, last.number
        except (SpecError, OSError) as reason:
            said.value = problem_html(str(reason))
        finally:
            busy(False)
            ask()

    def busy(running: bool) -> None:
        train_it.disabled = clear.disabled = tree.busy = running
        cancel.disabled = not running

    def start(_: Any) -> None:
        if len(held[0].store.log()) + setting().epochs > MOST:
            said.value = problem_html(f"More than {MOST} versions do not fit the page: clear them.")
            return
        busy(True)
        stop.clear()
        thread(
            target=work, args=(setting(), held[0].store.version(tree.chosen)), daemon=True
        ).start()

    def cleared(_: Any) -> None:
        held[0].folder.remove()
        held[0] = Trunk()
        said.value = ""
        with tree.hold_trait_notifications():
            tree.other, tree.chosen = 0, 1
        draw()
        chose()

    tree.chosen = 1
    draw()
    chose()
    tree.observe(chose, ("chosen", "other"))
    train_it.on_click(start)
    cancel.on_click(lambda _: stop.set())
    clear.on_click(cleared)
    row = ipywidgets.HBox([train_it, cancel, clear], layout={"flex_flow": "row wrap"})
    note = "how little a version writes when little has changed."
    results = [asked, row, said, wall, tree, branches, written, differences]
    return workbench(controls, results, ask, note)


def last_layer_bytes() -> int:
    """Return the bytes that change when the last layer alone is trained."""
    network = Learner().network
    last = network.parameters[-1].layer
    return sum(
        (p.stop - p.start) * network.dtype.itemsize for p in network.parameters if p.layer == last
    )


def ends_of(store: SnapshotStore) -> dict[str, list[str]]:
    """Return the names of the branches that end at each version, by its id."""
    ends: dict[str, list[str]] = {}
    for name in store.branches.names():
        ends.setdefault(store.branches.get(name) or "", []).append(name)
    return ends


def asked_words(store: SnapshotStore, chosen: int, setting: Setting) -> str:
    """Say what a click would do."""
    start = store.version(chosen)
    newest = store.newest(start.branch)
    on = f"on {start.branch}" if newest and newest.id == start.id else "on a new branch"
    plural = "s" * (setting.epochs != 1)
    return (
        f"A perceptron of {', '.join(map(str, WIDTHS))}, fp32, on digits. A click continues from version"
        f" {start.number} ({start.short}) {on}: {setting.epochs} epoch{plural}, {setting.what}, rate {setting.rate:g}."
    )


def version_words(version: Version, how: str) -> str:
    """Say what a version is, in a line."""
    return f"{version.metrics['accuracy']:.1%} accuracy, step {version.step}, {how}"


def written_view(trunk: Trunk) -> State:
    """Return the columns of the chart "failures_written"."""
    versions = trunk.store.log()
    rows = [
        (str(v.number), float(v.written), float(v.size), trunk.how.get(v.id, "")) for v in versions
    ]
    return written_state(rows)


def waits_words(trunk: Trunk) -> str:
    """Say how long each version stalled training, and how long it took in the background."""
    copied, published = (float(np.median(times)) for times in zip(*trunk.waits, strict=True))
    return (
        f"<b>Saved in the background.</b> Training stalled for {show(copied, 's')} to copy the state (median of"
        f" {len(trunk.waits)} versions); it was hashed, written and flushed {show(published, 's')} later."
    )


def branches_html(trunk: Trunk) -> str:
    """Return each branch with where it began and how well it does, as a table."""
    versions, known = trunk.store.log(), {v.id: v for v in trunk.store.log()}
    lines = [["branch", "begins from", "versions", "newest", "accuracy there", "best so far"]]
    for name in dict.fromkeys(v.branch for v in versions):
        own = [v for v in versions if v.branch == name]
        root, best = known.get(own[0].parent), max(own, key=lambda v: v.metrics["accuracy"])
        lines.append(
            [
                name,
                f"version {root.number}" if root else "the first weights",
                str(len(own)),
                str(own[-1].number),
                f"{own[-1].metrics['accuracy']:.1%}",
                f"{best.metrics['accuracy']:.1%} (version {best.number})",
            ]
        )
    return table_html(lines)


def collapse_wall(store: SnapshotStore, version: Version) -> str:
    """Say that a version has unlearned, and which of its ancestors to go back to; or nothing."""
    above = list(_ancestors(version, {v.id: v for v in store.log()}))
    good = max(above, key=lambda v: v.metrics["accuracy"], default=version)
    now, then = version.metrics["accuracy"], good.metrics["accuracy"]
    if not now < COLLAPSED < then:
        return ""
    return (
        f"Version {version.number} has unlearned: {now:.0%} accuracy, after {then:.0%} in version {good.number}. With"
        f" a single"
        " checkpoint, overwritten each time, that would be lost: click it, and continue from there."
    )


def _ancestors(version: Version, known: dict[str, Version]) -> Iterable[Version]:
    while version.parent in known:
        version = known[version.parent]
        yield version


def differences_html(a: Version, b: Version, rows: Iterable[Difference]) -> str:
    """Return what two versions differ in, tensor by tensor, as a table."""
    lines = [["tensor", "size", "shared", "relative difference"]]
    for row in rows:
        shared = "all of it" if row.kind == "shared" else show(float(row.shared), "B")
        lines.append([row.name, show(float(row.size), "B"), shared, _apart(row.relative)])
    head = f"<b>Version {a.number} compared with {b.number}.</b> Shared bytes are stored once."
    return verdict_html(head) + table_html(lines)


def _apart(relative: float) -> str:
    if not np.isfinite(relative):
        return "it was 0, or is a count or text: no number"
    return f"{relative:.2%}" if relative < 10 else f"{relative:,.3g} times"
