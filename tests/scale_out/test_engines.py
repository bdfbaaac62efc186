"""Chunks in any place: results in order, and what a lost worker leaves."""

import os
from pathlib import Path

import lost_chunk
import numpy as np
import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch.systems import NAMES
from lib_dlhpc.scale_out import LostError, Progress, Work, jobs, place, progress, results, task
from lib_dlhpc.scale_out.work import experiment_of, open_folder, text_of
from lib_dlhpc.spec.experiment import Experiment


@pytest.fixture
def lost(tmp_path, monkeypatch, own_state):
    """Five chunks, of which the third kills its process, the first time."""
    paths = [str(Path(lost_chunk.__file__).parent), os.environ.get("PYTHONPATH", "")]  # for jobs
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    return Work("lost_chunk:chunk", {"once": str(tmp_path / "once")}, 5)


@pytest.mark.parametrize("on", ["processes:1", "local"])
def test_a_killed_worker_is_reported_and_the_rest_is_done_by_the_next_call(lost, on, tmp_path):
    where = place(on, tmp_path / "work", **({"tasks": 1} if on == "local" else {}))
    said = "1 of 1 jobs failed" if on == "local" else "A worker process ended"
    with pytest.raises(LostError, match=said):
        list(results(lost, where))
    held = sorted(path.name for path in (tmp_path / "work").glob("chunk*"))
    assert held == ["chunk-000000.npz", "chunk-000001.npz"]  # and no unfinished file
    assert [int(each["square"]) for each in results(lost, where)] == [0, 1, 4, 9, 16]
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(("number", "own"), [(0, [1, 5]), (1, [3, 7])])
def test_jobs_share_what_is_missing_and_not_what_all_once_had(number, own, tmp_path, monkeypatch):
    """Of two jobs, the one that was lost had every second chunk; the next two have one half of these each."""
    open_folder(tmp_path, Work("lost_chunk:chunk", {}, 9))
    (tmp_path / "jobs-1.json").write_text("[1, 3, 5, 7]")
    done = []
    monkeypatch.setattr(task, "do", lambda work, chunk, folder: done.append(chunk))
    task.main(str(tmp_path / "jobs-1.json"), str(number), "2")
    assert done == own


def test_a_scheduler_is_asked_about_one_job_at_a_time(monkeypatch):
    asked = []

    class Job:
        def __init__(self, name, looks):
            self.name, self.looks = name, looks

        @property
        def state(self):
            asked.append(self.name)
            self.looks -= 1
            return "running" if self.looks > 0 else "done"

    monkeypatch.setattr(jobs, "PAUSE", 0.0)
    jobs._wait([Job("first", 5), Job("second", 2), Job("third", 1)], lambda: None)
    assert asked[:8] == [*["first"] * 5, *["second"] * 2, "third"]
    assert asked[8:] == ["first", "second", "third"]  # how each ended


@pytest.mark.parametrize("name", [*NAMES, "local"])
def test_a_batch_system_is_a_place_that_needs_a_folder(name, tmp_path):
    """Its file in launch/systems is all that names it."""
    assert place(name, tmp_path).engine == name
    with pytest.raises(SpecError, match="needs --work FOLDER"):
        place(name)
    with pytest.raises(SpecError, match=rf"dask, .*{name}.*; processes:2"):
        place(f"{name}:2", tmp_path)


class Ends:
    """A job that runs when it is first looked at, and has then written its only chunk."""

    def __init__(self, folder):
        self.folder, self.states = folder, ["done", "running"]

    @property
    def state(self):
        if len(self.states) == 1:
            return self.states[0]
        np.savez(self.folder / "chunk-000000.npz", square=np.array(0))
        return self.states.pop()


def test_finished_chunks_are_reported_while_work_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 0.0)
    monkeypatch.setattr(jobs, "PAUSE", 0.0)
    (tmp_path / "once").touch()
    work, seen = Work("lost_chunk:chunk", {"once": str(tmp_path / "once")}, 3), []
    where = place("here", progress=Progress(lambda *found: seen.append(found)))
    assert len(list(results(work, where))) == 3
    assert seen == [(1, 3), (2, 3), (3, 3)]
    monkeypatch.setattr(jobs, "_submitted", lambda where, folder, missing: [Ends(folder)])
    seen.clear()
    where = place("local", tmp_path / "work", progress=where.progress)
    assert len(list(results(work, where))) == 3
    assert seen == [(1, 3)]


def test_progress_is_reported_every_few_seconds_and_not_before(monkeypatch):
    now, seen = [100.0], []
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    report = Progress(lambda *found: seen.append(found))
    for done in range(50):
        now[0] += 0.5
        report(done, 50)
    assert seen == [(19, 50), (39, 50)]


def test_a_chunk_in_this_process_has_the_same_experiment():
    run = Experiment(model="mlp-mnist", machine="selene")
    text = text_of(run)
    assert experiment_of(text) is run
    del run
    again = experiment_of(text)  # as in another process
    assert again.model.name == "mlp-mnist" and text_of(again) == text
