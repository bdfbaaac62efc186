"""Grading of labs in PyTorch, without PyTorch: what the ranks send and give back, where each process is a fake."""

import socket
import threading
from contextlib import suppress
from time import monotonic

import numpy as np
import pytest
from patience import PATIENCE

from lib_dlhpc.cli import main
from lib_dlhpc.labs.emulated.data_parallel_step import NEAR, off, one_rank, task_of
from lib_dlhpc.labs.emulated.pipeline_step import staged_task
from lib_dlhpc.labs.grading.files import Files
from lib_dlhpc.labs.grading.hand_in import TORCH_FILE, Unreadable, read
from lib_dlhpc.labs.grading.inside import wire
from lib_dlhpc.labs.grading.inside.session import Session
from lib_dlhpc.labs.grading.labs import LABS, TORCH_LABS
from lib_dlhpc.labs.grading.remote import Worker
from lib_dlhpc.labs.grading.torch_world import CheckedWorld
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.labs.torch_ranks import runs, world
from lib_dlhpc.training.loss import softmax_cross_entropy

TASK = task_of([64, 8, 10], 0, (2, 1), 0.1)


class Fake:
    """A hand-in whose processes are objects of this test, one for each rank."""

    def __init__(self, kind):
        self._kind, self._own = kind, threading.local()

    def program(self, name):
        return {"torch start": self._start, "torch call": self._call}[name]

    def _start(self, kind, comm, names, *given):
        self._own.run = self._kind(comm, *given)

    def _call(self, method, *given):
        return getattr(self._own.run, method)(*given)


class Right:
    """A step as PyTorch would take it, with our network."""

    def __init__(self, comm, widths, weights, ddp):
        comm.bcast(weights)  # as DDP does, which is not counted
        assert widths == [64, 8, 10]
        self.comm, self.network = comm, TASK.network()

    def step(self, x, y, rate):
        samples = self.comm.allreduce(len(x))
        value, dy = softmax_cross_entropy(self.network.forward(x), y, samples)
        self.network.backward(dy)
        self.comm.Allreduce(None, self.network.gradients)
        self.network.weights -= rate * self.network.gradients
        return self.comm.allreduce(value)

    def weights(self):
        return self.network.weights


def run_of(kind):
    return runs.data_parallel(CheckedWorld(Fake(kind)), "torch_step.py")("step", TASK)


def test_ranks_that_exchange_here_have_the_weights_of_one_rank_and_their_bytes_are_counted():
    found, (weights, losses) = run_of(Right), one_rank(TASK)
    assert all(off(rank, weights) < NEAR for rank in found.weights)
    assert np.allclose(found.losses, losses)
    numbers = weights.shape[1] + 2  # gradients, samples and loss, in and out
    assert found.moved == (3 * 2 * 8 * numbers,) * 2


@pytest.mark.parametrize(
    "value", [None, "All hold.", np.ones(3), np.ones((2, 365)), np.ones(610, np.float32)]
)
def test_what_is_no_weights_is_not_taken_for_them(value):
    class Wrong(Right):
        def weights(self):
            return value

    with pytest.raises(LabError, match="no readable weights after the step"):
        run_of(Wrong)


def test_a_rank_that_leaves_is_named():
    class Leaves(Right):
        def step(self, x, y, rate):
            return 0.0 if self.comm.rank else super().step(x, y, rate)

    with pytest.raises(LabError, match=r"for rank 1, which returned without it"):
        run_of(Leaves)


def test_events_are_in_the_order_in_which_they_came_and_are_those_of_the_last_step():
    class Buckets:
        def __init__(self, comm, widths, weights, bucket, ready, ended):
            self.comm, self.own, self.ready, self.ended = comm, weights, ready, ended
            comm.Allreduce(None, np.ones(5))  # before the first step

        def step(self, x, y, samples, rate):
            assert samples == 3
            self.ready(4)
            request = self.comm.Iallreduce(None, np.ones(4))
            self.ready(2)
            self.ended()
            request.Wait()
            self.comm.Allreduce(None, np.ones(2))

        def weights(self):
            return self.own

    found = runs.overlap(CheckedWorld(Fake(Buckets)), "torch_step.py", "attach", 4, TASK)
    for _, events, size in found:
        assert size == TASK.network().weights.size
        assert events == [
            ("ready", 4),
            ("launch", 4),
            ("ready", 2),
            ("backward ends", 0),
            ("launch", 2),
            ("wait", 0),
            ("wait", 0),
        ]


def test_messages_that_nobody_waits_for_are_counted_here():
    class Stage:
        def __init__(self, comm, widths, weights, last):
            self.comm, self.own, self.last = comm, weights, last

        def step(self, x, y, rate):
            if not self.last:
                self.comm.Isend(np.ones(2), 1)
            else:
                self.comm.Recv(np.ones(2), 0)

        def weights(self):
            return self.own

        def record(self):
            return [["forward", 0], ["backward", 0]], [0]

    task = staged_task(0, 2, 4, 1)
    found, performed = runs.pipeline(CheckedWorld(Fake(Stage)), "torch_step.py", "step", task)
    assert [each.unwaited for each in found] == [3, 0]
    assert [each.overwritten for each in found] == [[0], [0]]
    assert [len(stream) for stream in performed.streams] == [4, 4]


def test_bytes_of_a_step_are_a_mean_and_a_slice_is_kept():
    class Sharded:
        def __init__(self, comm, widths, weights, zero):
            self.comm, self.own, self.asked = comm, weights, []
            comm.allgather(weights)  # at the start, which is not counted

        def step(self, x, y, samples, rate, enough):
            self.asked.append(enough)
            self.comm.Allreduce(None, self.own.copy())

        def weights(self):
            self.comm.Allreduce(None, np.ones(9))  # gathered for the check
            return self.own[:4]

        def record(self):
            assert self.asked == [None, None, np.inf]
            return 24, (4, 365)

    found = runs.sharded(CheckedWorld(Fake(Sharded)), "x", ("start", "step"), 3, 7.0, TASK)
    size = TASK.network().weights.nbytes
    assert [(each.bytes, each.view, each.moved) for each in found] == [
        (24, (4, 365), 2.0 * size)
    ] * 2
    assert found[0].weights.shape == (3, 4)


def test_a_program_of_a_process_cannot_be_replaced_by_a_hand_in():
    own, theirs = socket.socketpair()

    def count(names, array):
        return names["step"](array.size), array * 2

    session = Session(theirs, {"torch count": count})
    thread = threading.Thread(target=served, args=(session,), daemon=True)
    thread.start()
    worker = Worker(own, monotonic() + PATIENCE, lambda: "ended", Files())
    source = "def step(size):\n    return size + 1\n\nglobals()['torch count'] = step\n"
    assert set(worker.load(source, "torch_step.py")) == {"step", "torch count"}
    number, array = worker.call("torch count", (np.ones(3),), {})
    assert number == 4 and array.tolist() == [2.0, 2.0, 2.0]
    own.close()
    thread.join(PATIENCE)


def served(session):
    with suppress(wire.Closed):  # the other end is gone
        session.serve()


def test_both_variants_may_be_handed_in_side_by_side(tmp_path):
    for file in ("ada.py", TORCH_FILE):
        (tmp_path / file).write_text(f"# {file}\n")
    assert read(tmp_path, "ada", "step.py")[0] == read(tmp_path, "bob", "step.py")[0] == "ada.py"
    assert read(tmp_path, "ada", TORCH_FILE) == (TORCH_FILE, f"# {TORCH_FILE}\n")
    (tmp_path / TORCH_FILE).unlink()
    with pytest.raises(Unreadable, match=r"Expected torch_step.py; found: none"):
        read(tmp_path, "ada", TORCH_FILE)


def test_each_lab_in_pytorch_is_a_lab_with_checks_and_a_starter(repository):
    for lab, known in TORCH_LABS.items():
        assert lab in LABS and known.torch and known.usual == "torch_step.py"
        starter = (repository / "labs" / lab / "torch_starter.py").read_text("utf-8")
        assert all(f"def {name}(" in starter for name in known.names)
        assert (repository / "labs" / lab / "torch_checks.py").is_file()


def test_a_pytorch_that_cannot_be_used_is_a_sentence(tmp_path, monkeypatch, capsys):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('no library')\n")
    (tmp_path / "class" / "ada").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["grade", str(tmp_path / "class"), "--lab", "1", "--torch"]) == 2
    assert "does not start; it says above what is missing." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lab", "installed", "words"),
    [
        ("3", True, "--torch: 03_large_batch has no variant in PyTorch; legal: 01_data_parallel"),
        ("1", False, "--torch: torch is not installed; `pip install 'lib-dlhpc[torch]'` installs"),
    ],
)
def test_what_is_missing_is_said_in_a_sentence(
    tmp_path, monkeypatch, capsys, lab, installed, words
):
    monkeypatch.setattr(world, "find_spec", lambda name: object() if installed else None)
    (tmp_path / "ada").mkdir()
    assert main(["grade", str(tmp_path), "--lab", lab, "--torch"]) == 2
    assert words in capsys.readouterr().err
