"""docs/peers.md has the errors of predictions and of the peers' stored answers, and one search by both planners."""

from importlib import import_module

import pytest
from published_rows import scored

from lib_dlhpc.planner import plan


@pytest.fixture(scope="module")
def from_benchmarks(repository):
    """A function: the module of that name in the folder of the benchmarks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(repository / "benchmarks")
        yield import_module


@pytest.fixture(scope="module")
def peers(from_benchmarks):
    return from_benchmarks("peers")


@pytest.fixture(scope="module")
def searched(from_benchmarks):
    return from_benchmarks("_calculon_space")


@pytest.fixture(scope="module")
def rows(peers):
    chosen = peers.chosen()
    return [row for row in scored() if row.id in chosen]


def test_the_page_has_the_tables(peers, rows, repository):
    page = (repository / "docs" / "peers.md").read_text(encoding="utf-8")
    answers = peers.kept()
    assert set(answers) == {row.id for row in rows}
    for part in (peers.split_table, peers.class_table, peers.better):
        for line in part(rows, answers):
            assert line in page
    assert peers._peer_calculon.COMMIT[:8] in page
    assert f"mlsysim/) {peers._peer_mlsysim.VERSION}" in page


def test_the_librarys_own_step_has_the_librarys_own_error(peers, rows):
    for row in rows:
        step = peers.step_here(row)
        assert peers.error_of(row, step) == pytest.approx(row.error, abs=1e-9)


def test_the_librarys_own_step_meets_the_measured_start(peers, rows):
    """The start of a row is the run that was measured: its step follows from the number that was printed."""
    row = next(row for row in rows if row.id == "megatron21-1t")
    run, seconds = peers.start_of(row)
    assert int(run.devices) == 512
    rate = 138e12  # megatron21-39b: TFLOP/s of a device, recomputation counted
    flop = 512 * rate * seconds / int(run.global_batch)
    assert flop == pytest.approx(run.model.train_flop * 4 / 3, rel=0.02)


def test_a_plan_and_calculons_search_of_one_space_agree_within_model_differences(
    searched, repository
):
    """The best by each is within a twentieth of the other's best, by the other's model; the page has the figures."""
    found = plan(searched.experiment(), choose=searched.CHOOSE)
    ours = {searched.layout_of(one.changes): one.values["step"] for one in found.ranked}
    theirs = searched.stored()
    here = searched.layout_of(found.best.changes)
    there = min((layout for layout in ours if layout in theirs), key=theirs.__getitem__)
    above = theirs[here] / min(theirs.values()) - 1, ours[there] / ours[here] - 1
    assert found.gap == 0 and max(above) < 0.05
    page = (repository / "docs" / "peers.md").read_text(encoding="utf-8")
    for part in (*(f"{100 * each:.1f}%" for each in above), f"{found.legal:,}", str(len(theirs))):
        assert part in page.partition("## The same search")[2].partition("## ")[0], part
