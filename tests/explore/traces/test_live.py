"""The real runs of the lesson on traces: what is reported, files to keep, and nothing left when they are ended."""

import io
import json
import re
import threading
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from experiment_page import Now, button, click, controls, each_position_shows_its_own, result_text
from patience import eventually

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.runner import Cancelled
from lib_dlhpc.explore.traces import here as traces_here
from lib_dlhpc.explore.traces import process as traces_process
from lib_dlhpc.explore.traces.coupled import (
    COSTS,
    RANKS,
    SHARED,
    Setting,
    best,
    costs,
    number_of,
    pace_wall,
    ways,
    workflow,
)
from lib_dlhpc.explore.traces.coupled_here import Setting as Coupled
from lib_dlhpc.explore.traces.coupled_here import couple_here
from lib_dlhpc.explore.traces.coupled_here import workflow as run_here
from lib_dlhpc.explore.traces.here import (
    NOBODY,
    PROGRAM,
    STEPS,
    Traced,
    asked,
    files,
    from_meeting,
    machine,
)
from lib_dlhpc.explore.traces.here import Setting as Planted
from lib_dlhpc.explore.traces.live import trace_here
from lib_dlhpc.explore.traces.process import RunError, through
from lib_dlhpc.prediction.communication.coupled import predict_coupled
from lib_dlhpc.simulation.neighbors import program, ring, simulate_neighbors
from lib_dlhpc.timeline import from_rows
from lib_dlhpc.timeline.analysis import analyze
from lib_dlhpc.timeline.formats import read


def traced(setting: Planted) -> Traced:
    """What would come of a run in which all sleep for as long as they are asked to."""
    before, after = asked(setting)
    what = program(*before.shape, before, after, 0.0, setting.size)
    return Traced(simulate_neighbors(what, ring(machine(), 4), barrier=True), before, after)


# the traced program ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", traces_here.FOUND_AS)
@pytest.mark.parametrize("rank", range(4))
def test_what_the_late_rank_costs_is_predicted_simulated_and_found(how, rank):
    setting = Planted(rank, how)
    terms = traces_here.ways(setting, traced(setting))
    planted = STEPS * setting.by * (2 if how == "sends late" else 1)
    for engine in ("predicted", "simulated", "measured"):
        assert terms["what the late rank costs"][engine] == pytest.approx(planted, rel=0.01)
        parts = sum(terms[term][engine] for term in traces_here.TERMS)
        assert parts == pytest.approx(terms["the run"][engine], rel=1e-6)


def test_sending_late_makes_a_balanced_run_longer_by_all_that_it_is_late():
    late = Planted(how="sends late")
    assert traces_here.longer_if_late(late) == pytest.approx(STEPS * late.by)
    assert traces_here.longer_if_late(Planted(NOBODY, "sends late")) == 0


def test_a_trace_begins_where_all_have_met():
    rows: list[Any] = [
        (0, "communication", "collective", "MPI_Barrier", 0.0, 5.1, 0, -1, 0, 1),
        (1, "communication", "collective", "MPI_Barrier", 5.0, 5.2, 0, -1, 0, 1),
        (0, "communication", "collective", "MPI_Allreduce", 6.0, 7.0, 8, -1, 0, 2),
        (1, "communication", "collective", "MPI_Allreduce", 6.5, 7.0, 8, -1, 0, 2),
    ]
    own = from_meeting(from_rows(rows, 2, "measured"))
    assert sorted(own.start) == pytest.approx([0, 0, 1.0, 1.5])
    assert sorted(own.stop) == pytest.approx([0.1, 0.2, 2.0, 2.0])


def test_a_run_is_reported_with_what_was_planted_and_its_prediction_beside_it():
    page = trace_here(lambda setting, _: traced(setting), Now)
    assert not click(page, "Run and trace").disabled and button(page, "Cancel").disabled
    for words in (
        "✓ Rank 2 was late, and is blamed for 800 ms",
        "predicted",
        "simulated",
        "measured",
        "error",
        "Why they differ",
        "Efficiencies",
        "mpi4py",
    ):
        assert words in result_text(page)
    controls(page)["Late rank"].value = NOBODY
    click(page, "Run and trace")
    assert "✓ Nobody was late, and nobody is blamed." in result_text(page)


def test_a_late_rank_that_is_not_found_is_said_to_be_missed():
    page = trace_here(lambda *_: traced(Planted(NOBODY)), Now)
    click(page, "Run and trace")
    assert "✗ Rank 2 was late, and the analysis does not say so" in result_text(page)


def test_every_position_of_the_real_runs_asks_for_a_run_of_its_own():
    for page in (trace_here(), couple_here()):
        each_position_shows_its_own(page)


def test_a_trace_is_kept_in_both_formats_and_read_again(tmp_path):
    timeline = traced(Planted()).timeline
    page = trace_here(lambda setting, _: traced(setting), Now)
    click(page, "Run and trace")
    names = re.findall(r'download="([^"]+)" href="data:[^"]+;base64,[^"]', result_text(page))
    kept = files(timeline)
    assert names == list(kept) == ["trace.json", "trace.otf2.zip"]
    (tmp_path / "trace.json").write_bytes(kept["trace.json"])
    zipfile.ZipFile(io.BytesIO(kept["trace.otf2.zip"])).extractall(tmp_path)
    for again in (read(tmp_path / "trace.json"), read(tmp_path / "trace.otf2")):
        assert len(again) == len(timeline)
        np.testing.assert_allclose(analyze(again).compute, analyze(timeline).compute, rtol=1e-3)


@pytest.mark.parametrize("problem", [RunError("a bad day"), SpecError("no MPI"), Cancelled()])
def test_what_goes_wrong_is_shown_and_it_can_be_tried_again(problem):
    def fails(*_: Any) -> Any:
        raise problem

    for page, name in (
        (trace_here(fails, Now), "Run and trace"),
        (couple_here(fails, thread=Now), "Couple"),
    ):
        assert not click(page, name).disabled and button(page, "Cancel").disabled
        assert (str(problem) or "Cancelled.") in result_text(page)


# a command that a page starts -----------------------------------------------------------------------


def test_what_a_command_prints_is_returned_and_its_mistake_is_reported(tmp_path):
    assert "dlhpc" in through(("--version",), tmp_path, threading.Event())
    with pytest.raises(RunError, match=r"missing\.toml"):
        through(("couple", "missing.toml"), tmp_path, threading.Event())


def test_a_run_that_is_cancelled_leaves_no_rank_and_no_file(tmp_path, monkeypatch):
    pytest.importorskip("mpi4py")
    monkeypatch.setattr(traces_here, "STEPS", 100_000)
    monkeypatch.setattr(traces_here.owned, "make_folder", lambda prefix: made(tmp_path))
    stop, ended = threading.Event(), []

    def work() -> None:
        try:
            traces_here.run(Planted(), stop)
        except Cancelled:
            ended.append("cancelled")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        eventually(lambda: len(ranks_below(tmp_path)) == traces_here.RANKS, "four ranks")
        ranks = ranks_below(tmp_path)
    finally:
        stop.set()
        thread.join()
    assert ended == ["cancelled"] and not list(tmp_path.iterdir())
    eventually(lambda: not any(map(goes_on, ranks)), "the end of all ranks")


def goes_on(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def made(folder: Path) -> Path:
    (folder / "run").mkdir()
    return folder / "run"


def ranks_below(folder: Path) -> list[psutil.Process]:
    """The processes that run the program for that folder, without mpiexec and dlhpc."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if str(PROGRAM) in words and "lib_dlhpc.launch.traced" in words and "-n" not in words:
            found += [process] * any(str(folder) in word for word in words)
    return found


def test_a_command_that_takes_too_long_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(traces_process, "PATIENCE", 0.2)
    code = ("-c", "import time; time.sleep(1000)")
    monkeypatch.setattr(traces_process, "DLHPC", (traces_process.DLHPC[0],))
    with pytest.raises(RunError, match="this machine is busy"):
        through(code, tmp_path, threading.Event())


@pytest.mark.slow
def test_for_real_a_late_rank_is_planted_in_an_unmodified_program_and_seen_in_its_trace():
    pytest.importorskip("mpi4py")
    setting = Planted(1, "sends late", 0.08)
    own = traces_here.run(setting, threading.Event())
    assert own.before.shape == (STEPS, 4) and own.timeline.ranks == 4
    # Nobody sleeps less than asked for: the late one sends this much later than the others begin to wait.
    before, after = asked(setting)
    assert (own.before >= before).all() and (own.after >= after).all()
    matrix = analyze(own.timeline).matrix
    assert matrix.messages.sum() == 2 * 4 * STEPS
    assert float(analyze(own.timeline).waits["late sender"][[0, 2]].min()) > 0


# the coupled workflow -------------------------------------------------------------------------------


def test_bars_are_all_placements_and_the_quickest_is_named():
    every = ways(Setting())
    assert [number_of(way) for way in every] == list(range(RANKS))
    for way in every:
        assert sum(way.terms.values()) == pytest.approx(way.seconds)
    assert best(Setting()).seconds == min(way.seconds for way in every)


def wall(setting: Setting) -> str:
    return pace_wall(setting, predict_coupled(workflow(setting), costs(setting), RANKS))


def test_walls_name_the_side_that_waits_and_where_a_buffer_helps():
    assert "training waits for samples" in wall(Setting(1))
    assert "simulation waits for room" in wall(Setting(7))
    assert "both vary" in wall(Setting(6, depth=1, jitter=0.3))
    assert wall(Setting(SHARED)) == ""


def test_what_a_click_runs_is_what_the_controls_say():
    own = run_here(Coupled(3, 4, 8, SHARED))
    assert (own.simulation.sampling, own.coupling.depth, own.coupling.placement) == (4, 8, "shared")
    assert own.batches == 20


def outcome_of(first: Any, then: Any = None) -> dict[str, Any]:
    """What `dlhpc couple --json` would print: predictions in the place of measurements."""

    def one(way: Any) -> dict[str, Any]:
        terms = {
            n: dict.fromkeys(("predicted", "simulated", "measured"), s)
            for n, s in way.terms.items()
        }
        waited = way.terms["wait for samples"] + way.terms["wait for room"]
        return {
            "predicted": asdict(way),
            "terms": terms,
            "waited": waited,
            "seconds": way.seconds,
            "errors": [2.0, 0.5],
        }

    outcome = {"before": one(first), "placements": [], "after": one(then) if then else None}
    return dict(json.loads(json.dumps(outcome)))


def test_before_and_after_are_reported_with_their_waits():
    apart, shared = (
        predict_coupled(run_here(Coupled(simulating=n)), COSTS, 2) for n in (1, SHARED)
    )
    page = couple_here(lambda *_: outcome_of(apart, shared), thread=Now)
    click(page, "Couple")
    for words in (
        "✓ 1 + 1 took",
        "all, in turn took",
        "faster, as predicted",
        "error",
        "Why they differ",
    ):
        assert words in result_text(page)
    page = couple_here(lambda *_: outcome_of(shared, apart), thread=Now)
    click(page, "Couple")
    assert "✗" in result_text(page) and "not faster here" in result_text(page)
    page = couple_here(lambda *_: outcome_of(shared), thread=Now)
    click(page, "Couple")
    assert "No other placement is predicted to save" in result_text(page)
