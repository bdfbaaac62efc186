"""Run-queue delay: the counter between the ends of two steps, without evaluations and checkpoints."""

import pytest

from lib_dlhpc.training import core_waits
from lib_dlhpc.training.core_waits import CoreWait
from lib_dlhpc.training.record import Recorder
from lib_dlhpc.training.single_rank import SingleRank


@pytest.fixture
def counter(tmp_path, monkeypatch):
    """The system's counter: counter(s) sets it."""
    file = tmp_path / "schedstat"
    monkeypatch.setattr(core_waits, "COUNTER", str(file))

    def count(seconds):
        file.write_text(f"123456789 {round(seconds * 1e9)} 42\n")

    count(7.0)
    return count


def test_each_step_has_what_was_counted_in_it(counter):
    waits = CoreWait()
    for seconds in (7.5, 7.5, 9.0):
        counter(seconds)
        waits.step_ends()
    assert waits.steps == pytest.approx([0.5, 0.0, 1.5])


def test_tests_and_checkpoints_between_two_steps_belong_to_neither(counter):
    recorder = Recorder()
    recorder.add("update", "update", 0.0, 1.0)
    counter(8.0)
    recorder.leave_out(1.0)
    counter(8.25)
    recorder.add("update", "update", 1.0, 2.0)
    counter(9.0)
    recorder.add("checkpoint", "wait for the checkpoint", 2.0, 3.0)
    counter(9.5)
    recorder.add("update", "update", 3.0, 4.0)
    assert recorder.core_wait.steps == pytest.approx([0.0, 0.25, 0.5])


@pytest.mark.parametrize("text", [None, "", "nothing here"])
def test_without_system_counters_the_count_is_unknown(tmp_path, monkeypatch, text):
    file = tmp_path / "schedstat"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr(core_waits, "COUNTER", str(file))
    waits = CoreWait()
    waits.step_ends()
    waits.leave_out()
    assert waits.steps == []


def test_a_run_has_one_for_each_step_of_each_rank(counter):
    from lib_dlhpc.spec.experiment import read_experiment
    from lib_dlhpc.training.probe_steps import tiny
    from lib_dlhpc.training.trainer import train

    run = train(read_experiment(tiny(1)), SingleRank())
    (waits,) = run.core_wait
    updates = sum(event.kind == "update" for event in run.timeline)
    assert len(waits) == updates > 0 and set(waits) == {0.0}
