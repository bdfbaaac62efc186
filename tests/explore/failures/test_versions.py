"""Versions on the page: what is clicked is gone on from, what was there is not written again, and all is cleared."""

import gc
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiment_page import Now, button, click, controls, each_position_shows_its_own, result_text
from patience import eventually

from lib_dlhpc.explore.failures import versions as failures_versions
from lib_dlhpc.explore.failures.network import LAST, Learner, Setting, Trunk
from lib_dlhpc.explore.failures.versions import (
    MOST,
    Versions,
    VersionTree,
    collapse_wall,
    last_layer_bytes,
    tree_rows,
)
from lib_dlhpc.storage.snapshots import SnapshotError

GO = "Train from here"
EPOCHS = 8  # B of the number that says how many


@pytest.fixture
def trunk() -> Any:
    made = Trunk()
    yield made
    made.folder.remove()


def train(trunk: Trunk, number: int, **changes: Any) -> Any:
    return trunk.train(trunk.store.version(number), Setting(**changes), threading.Event())


def tree_of(page: Any) -> VersionTree:
    (tree,) = [w for w in page.children[1].children if isinstance(w, VersionTree)]
    return tree


def test_of_the_last_layer_alone_only_that_is_written(trunk):
    train(trunk, 1, epochs=2)
    last = train(trunk, 3, what=LAST, epochs=1)
    assert last.written == last_layer_bytes() + EPOCHS
    kinds = {row.name: row.kind for row in trunk.store.diff(3, 4)}
    changed = [name for name, kind in kinds.items() if kind == "changed"]
    assert changed == ["dense3.weight", "dense3.bias", "epochs"]


def test_from_the_newest_it_continues_and_from_any_other_a_branch_begins(trunk):
    assert train(trunk, 1, epochs=2).branch == "main"
    assert train(trunk, 3, epochs=1).branch == "main"
    aside = train(trunk, 2, rate=0.5, epochs=2)
    assert aside.branch == "branch-2"
    first = trunk.store.version(aside.parent)
    assert trunk.store.version(first.parent).number == 2
    assert train(trunk, aside.number, epochs=1).branch == "branch-2"


def test_the_same_way_again_ends_in_the_same_versions_and_writes_nothing(trunk):
    last = train(trunk, 1, epochs=3)
    before = len(trunk.store.log())
    again = train(trunk, 2, epochs=2)
    assert again.id == last.id and len(trunk.store.log()) == before


def test_in_pieces_or_at_once_the_weights_are_the_same():
    whole, parts = Learner(), Learner()
    for _ in range(3):
        whole.epoch("all layers", 0.1)
    parts.epoch("all layers", 0.1)
    taken = Learner()
    taken.network.weights[:] = 7.0
    taken.take_up({name: array.copy() for name, array in parts.state().items()})
    for _ in range(2):
        taken.epoch("all layers", 0.1)
    assert taken.network.weights.tobytes() == whole.network.weights.tobytes()
    assert taken.steps == whole.steps


def test_a_rate_that_is_too_high_unlearns_and_the_wall_names_what_to_go_back_to(trunk):
    good = train(trunk, 1, epochs=2)
    assert collapse_wall(trunk.store, good) == ""
    bad = train(trunk, good.number, rate=2.0, epochs=1)
    assert f"in version {good.number}" in collapse_wall(trunk.store, bad)
    assert collapse_wall(trunk.store, train(trunk, good.number, epochs=1)) == ""


def test_cancelling_keeps_what_is_done_and_learns_no_more(trunk):
    stop = threading.Event()
    stop.set()
    start = trunk.store.version(1)
    assert trunk.train(start, Setting(epochs=4), stop).number == 1


def test_rows_know_their_parents_and_their_lanes(trunk):
    train(trunk, 1, epochs=2)
    train(trunk, 2, rate=0.5, epochs=1)
    rows = tree_rows(trunk)
    assert [row["number"] for row in rows] == [1, 2, 3, 4]
    assert [row["parent"] for row in rows] == [0, 1, 2, 2]
    assert [row["lane"] for row in rows] == [0, 0, 0, 1]
    assert "[branch-2]" in rows[-1]["words"]


def test_a_click_trains_from_what_is_chosen_and_reports_the_outcome():
    page = Versions(Now)
    tree = tree_of(page)
    click(page, GO)
    assert tree.chosen == 5 and tree.other == 1 and len(tree.rows) == 5
    for words in ("Saved in the background", "Version 1 compared with 5", "dense1.weight", "main"):
        assert words in result_text(page)
    controls(page)["Rate"].value = 0.5
    tree.other, tree.chosen = 5, 3
    assert "on a new branch" in result_text(page) and "Version 5 compared with 3" in result_text(
        page
    )
    click(page, GO)
    assert tree.chosen == 9 and "branch-2" in result_text(page)
    tree.other, tree.chosen = 9, 3
    click(page, GO)
    assert "Nothing new." in result_text(page)
    assert not button(page, GO).disabled and not tree.busy


def test_every_control_changes_what_a_click_would_do():
    # The tree grows at a click; until then words say what it would do.
    each_position_shows_its_own(Versions(Now), worded=("Train", "Epochs", "Rate"))


def test_more_versions_than_can_be_seen_are_refused():
    page = Versions(Now)
    for _ in range(MOST // 4):
        click(page, GO)
    assert "clear them" in result_text(page) and len(tree_of(page).rows) <= MOST
    click(page, "Clear")
    assert len(tree_of(page).rows) == 1 and tree_of(page).chosen == 1


def test_what_goes_wrong_is_shown_and_it_can_be_tried_again(monkeypatch):
    page = Versions(Now)

    def fails(*_: Any) -> Any:
        raise SnapshotError(
            "step 45 of branch main: no space left; nothing of this version was published."
        )

    monkeypatch.setattr(Trunk, "train", fails)
    click(page, GO)
    assert "nothing of this version" in result_text(page) and not button(page, GO).disabled


def test_a_store_goes_with_what_held_it():
    trunk = Trunk()
    path = trunk.folder.path
    assert list(path.iterdir())
    del trunk
    gc.collect()
    assert not path.exists()


def test_a_folder_goes_when_its_process_is_killed(eventually_gone):
    program = (
        "import time; from lib_dlhpc.explore.blocks.folder import Folder;"
        "folder = Folder('test'); (folder.path / 'file').touch(); print(folder.path, flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    path = Path(process.stdout.readline().strip())
    assert (path / "file").exists()
    process.kill()
    process.wait()
    process.stdout.close()
    eventually_gone(path)


@pytest.fixture
def eventually_gone() -> Any:
    return lambda path: eventually(lambda: not path.exists(), what=f"the end of {path}")


def test_a_difference_is_reported_in_numbers_that_can_be_read():
    assert failures_versions._apart(0.0123) == "1.23%"
    assert failures_versions._apart(1.1e12).endswith("times")
    assert "no number" in failures_versions._apart(np.inf)
