"""The cell that submits: what it says of its run, that it submits nothing twice, and what it refuses."""

import json
import os
import signal
from dataclasses import replace

import pytest
from experiment_page import Now, button, click, words

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.compare.charts import ROWS
from lib_dlhpc.explore.submit.found import at_site
from lib_dlhpc.explore.submit.page import Submitted, run_folder, submitted
from lib_dlhpc.launch import JobError, Site, attach
from lib_dlhpc.spec.experiment import Experiment

SHORT = Experiment(
    model="mlp-digits",
    dataset="digits",
    machine="laptop",
    strategy={"devices_per_node": 2, "batch": 50},
    run={"epochs": 2},
)
LONG = SHORT.set({"run.epochs": 10_000})


pytestmark = pytest.mark.usefixtures("own_state", "ranks_can_start")


def test_one_call_runs_it_and_shows_every_way(tmp_path):
    run = submitted(SHORT, 2, "local", folder=tmp_path / "run")
    of = run.wait()
    assert of is run.found and of.step["measured"] > 0 and set(of.step) == set(ROWS)
    told = words(run)
    for row in ROWS.values():
        assert row in told
    assert "is done: 2,876 samples on 2 ranks" in told and "test accuracy" in told
    assert repr(run) == "Submitted(run)"


def test_the_same_cell_finds_its_run_and_hands_in_nothing_twice(tmp_path):
    first = submitted(LONG, 2, "local", folder=tmp_path / "run")
    assert first.job is not None
    second = submitted(LONG, 2, "local", folder=tmp_path / "run")
    assert second.job is not None and second.job.ticket == first.job.ticket
    click(second, "Cancel")
    for each in (first, second):
        with pytest.raises(JobError, match="cancelled"):
            each.wait()
    third = Submitted(LONG, 2, "local", folder=tmp_path / "run", thread=Now)
    assert third.job is not None and third.job.ticket == first.job.ticket
    assert third.job.state == "cancelled" and "The run was cancelled" in words(third)


def test_a_run_that_was_ended_is_handed_in_again_by_a_click(tmp_path):
    run = submitted(LONG, 2, "local", folder=tmp_path / "run")
    click(run, "Cancel")
    with pytest.raises(JobError):
        run.wait()
    shorter = LONG.set({"run.epochs": 2})
    (tmp_path / "run" / "snapshot.npz").unlink(missing_ok=True)
    run.experiment = shorter
    assert run.job is not None
    token = run.job.ticket.token
    run._panel.thread = Now
    click(run, "Submit again")
    assert run.job is not None and run.job.ticket.token != token and run.job.state == "done"
    assert run.found is run.wait()


def test_a_rank_that_fails_is_reported(tmp_path):
    run = submitted(LONG, 2, "local", folder=tmp_path / "run")
    assert run.job is not None
    while not (tmp_path / "run" / "rank-1.json").exists():
        assert run.job.state in ("queued", "running")
    pid = json.loads((tmp_path / "run" / "rank-1.json").read_text())["process"]
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(JobError, match="rank 1: Killed"):
        run.wait()
    assert "rank 1: Killed" in words(run) and run.found is None
    assert attach(tmp_path / "run").state == "failed"


def test_a_folder_with_another_run_is_refused_and_left_alone(tmp_path):
    submitted(SHORT, 2, "local", folder=tmp_path / "run").wait()
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").glob("*.json")}
    other = submitted(SHORT.set({"run.seed": 7}), 2, "local", folder=tmp_path / "run")
    with pytest.raises(SpecError, match="holds another run"):
        other.wait()
    assert other.job is None and "holds another run" in words(other)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").glob("*.json")} == before


@pytest.mark.parametrize("text", ["; touch x", "$(touch x)", "a\nb", "'", '"', "`touch x`"])
def test_no_text_of_a_cell_reaches_a_shell(tmp_path, text, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = [
        submitted(SHORT, 2, text),
        submitted(SHORT, 2, site=text),
        submitted(SHORT, 2, "local", time_limit=text),
    ]
    for run in refused:
        with pytest.raises(SpecError):
            run.wait()
        assert run.job is None and button(run, "Cancel").disabled
    assert not list(tmp_path.glob("**/x")) and not list(tmp_path.glob("dlhpc-*"))


def test_a_run_folder_is_named_by_what_is_run():
    names = {
        run_folder(SHORT, 2),
        run_folder(SHORT, 1),
        run_folder(SHORT.set({"run.epochs": 3}), 2),
        run_folder(SHORT.set({"model.name": "cnn-digits"}), 2),
    }
    assert len(names) == 4
    assert run_folder(SHORT, 2) == run_folder(SHORT.set({}), 2)


def test_the_prediction_is_for_the_site():
    site = Site(name="there", ranks_per_node=1)
    here = at_site(SHORT, 2, site)
    assert (here.experiment.strategy.nodes, here.experiment.strategy.devices_per_node) == (2, 1)
    told = " ".join(here.notes)
    assert "the run was one of there" in told and "2 nodes" in told and not here.oversubscribed
    one = at_site(SHORT, 2, replace(site, ranks_per_node=None))
    assert one.experiment.strategy.nodes == 1
    named = SHORT.set({"machine.name": "lassen"})
    assert at_site(named, 2, site).experiment == named
