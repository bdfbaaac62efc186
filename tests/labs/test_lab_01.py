"""Lab 1: the starter fails, the solution passes, and each mistake is named."""

from itertools import cycle

import pytest
from lab_answers import found
from patience import PATIENCE

from lib_dlhpc.explore.labs.lab import save
from lib_dlhpc.labs.emulated.ranks import LabError
from lib_dlhpc.labs.findings import passed

LAB = "01_data_parallel_step"
NAMES = ["your name", "another", "x"]


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_passes(own, solution, name):
    assert passed(own.findings(solution(LAB).step, name))


@pytest.mark.parametrize("name", NAMES)
def test_the_starter_fails_on_several_ranks_and_only_there(own, starter, name):
    scope = {}
    exec(starter(LAB), scope)
    findings = own.findings(scope["step"], name)
    assert found(findings, "One rank alone").right
    assert not any(found(findings, law).right for law in own.tasks(name))


def test_each_mistake_is_named(own, solution):
    for (mistake, (law, words)), name in zip(
        solution(LAB).MISTAKES.items(), cycle(NAMES), strict=False
    ):
        findings = own.findings(mistake, name)
        finding = found(findings, law)
        assert finding.right is False, (mistake.__name__, finding)
        assert words in finding.words, (mistake.__name__, finding)
        assert not passed(findings)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda comm, part, mean: part, "That is the contribution of its own samples only"),
        (lambda comm, part, mean: mean, "the mean over its own samples"),
        (lambda comm, part, mean: comm.allreduce(mean), "the sum of the ranks' means"),
        (lambda comm, part, mean: comm.allreduce(mean) / comm.size, "the mean of the ranks' means"),
    ],
)
def test_a_wrong_loss_is_named(own, solution, returned, words):
    def step(network, loss, x, y, comm, rate):
        part = loss(network.forward(x), y, comm.allreduce(len(x)))[0]
        mean = loss(network.forward(x), y, len(x))[0]
        solution(LAB).step(network, loss, x, y, comm, rate)
        return returned(comm, part, mean)

    finding = found(own.findings(step, "x"), own.LOSS)
    assert finding.right is False and words in finding.words


def test_single_precision_is_named(own):
    def step(network, loss, x, y, comm, rate):
        value, dy = loss(network.forward(x), y, comm.allreduce(len(x)))
        network.backward(dy)
        network.weights -= rate * comm.allreduce(network.gradients.astype("float32"))
        return comm.allreduce(value)

    assert "single precision" in found(own.findings(step, "x"), "Even shards").words


def test_replicas_that_agree_are_not_praised_for_it(own, solution):
    for mistake in (solution(LAB).mean_of_shares, solution(LAB).first_rank_leads):
        agree = found(own.findings(mistake, "x"), own.AGREE)
        assert agree.right and "not the right ones" in agree.words


def test_what_is_no_step_is_reported(own):
    for step, words in (
        (lambda *_: None, "did not change"),
        (lambda network, *_: network.nothing, "rank 0 stopped with AttributeError"),
        (
            lambda network, loss, x, y, comm, rate: network.weights.fill(float("nan")),
            "no longer numbers",
        ),
    ):
        text = " ".join(each.words for each in own.findings(step, "x"))
        assert words in text


def test_learners_have_different_variants(own):
    shares = {tuple(task.shares for task in own.tasks(name).values()) for name in NAMES}
    assert len(shares) == len(NAMES)
    for name in NAMES:
        even, uneven, empty = (task.shares for task in own.tasks(name).values())
        assert len(set(even)) == 1 and len(set(uneven)) == len(uneven) and 0 in empty


def test_the_solution_holds_on_real_ranks(own, solution, on_ranks, tmp_path):
    file = save(solution(LAB).step, tmp_path / "step.py")
    text = on_ranks(own.HERE / "checks.py", str(file), "x", ranks=3)
    assert "3 real ranks" in text and "All 4 hold" in text


def test_nothing_is_started_or_written_before_the_checks_hold(own, solution, monkeypatch):
    monkeypatch.setattr(own, "HERE", None)  # anything done with it would fail
    assert "Not yet" in own.on_ranks(solution(LAB).mean_of_means, "x").value


def test_a_rank_that_raises_ends_those_who_would_wait_for_it(own, on_ranks, tmp_path):
    file = tmp_path / "step.py"
    file.write_text(
        "from mpi4py import MPI\n\n\n"
        "def step(network, loss, x, y, comm, rate):\n"
        "    if comm.rank == 1 and isinstance(comm, MPI.Comm):\n"
        "        raise IndexError('gone')\n"
        "    return comm.allreduce(0.0)\n"
    )
    with pytest.raises(LabError, match="IndexError: gone"):
        on_ranks(own.HERE / "checks.py", str(file), "x", ranks=2, patience=PATIENCE)
