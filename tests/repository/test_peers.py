"""docs/peers.md has the errors that predictions and the peers' stored answers give; a row is the quantity it was."""

import sys

import pytest


@pytest.fixture(scope="module")
def peers(repository):
    sys.path.insert(0, str(repository / "benchmarks"))
    try:
        import peers
    finally:
        sys.path.pop(0)
    return peers


@pytest.fixture(scope="module")
def rows(peers):
    return peers.scored()


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
