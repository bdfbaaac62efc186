"""Other correct solutions pass, and steps that only look right do not: variants of the solutions, by their source."""

import inspect

import pytest
from lab_answers import run_cell
from mpi4py import MPI

from lib_dlhpc.labs.emulated.ranks import emulate
from lib_dlhpc.labs.findings import as_text, passed

ONE, TWO = "01_data_parallel_step", "02_overlap"
EXCHANGE = "comm.Allreduce(network.gradients, total)"
MOVE = "network.weights -= rate * total"
POST = "comm.Iallreduce(send, receive)"
WAIT = "request.Wait()"


def variant(solution, *changes):
    """The solution's step with text replaced, as from a cell of its own."""
    source = inspect.getsource(solution.step)
    for old, new in changes:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return run_cell(source, dict(vars(solution), MPI=MPI, shelf={}))["step"]


def words(findings, law):
    return next(each.words for each in findings if each.law == law and not each.right)


@pytest.mark.parametrize(
    "changes",
    [
        [(EXCHANGE, "total[:] = network.gradients; comm.Allreduce(MPI.IN_PLACE, total)")],
        [(EXCHANGE, "comm.Allreduce(network.gradients, total, op=MPI.SUM)")],
        [(EXCHANGE, "comm.Allreduce([network.gradients, MPI.DOUBLE], [total, MPI.DOUBLE])")],
        [(EXCHANGE, "comm.Allreduce([network.gradients, len(total), MPI.DOUBLE], total, MPI.SUM)")],
        [(EXCHANGE, "comm.Iallreduce(network.gradients, total).wait()")],
        [(EXCHANGE, "total = comm.allreduce(network.gradients)")],
        [(MOVE, "network.weights[:] = network.weights - rate * total")],
        [("return comm.allreduce(value)", "return np.array([comm.allreduce(value)])")],
        [(EXCHANGE, f"{EXCHANGE}; x *= 2; print(end='')")],
    ],
    ids=lambda changes: changes[0][1][:60],
)
def test_other_right_steps_pass(checks, solution, changes):
    assert passed(checks(ONE).findings(variant(solution(ONE), *changes), "x"))


@pytest.mark.parametrize(
    ("changes", "law", "said"),
    [
        ([(MOVE, "network.weights -= 2 * rate * total")], "One rank alone", "length is 2 times"),
        (
            [(MOVE, "network.weights = network.weights - rate * total")],
            "One rank alone",
            "a different array",
        ),
        (
            [
                (
                    MOVE,
                    "network.v = total + getattr(network, 'v', 0); network.weights -= rate * network.v",
                )
            ],
            "Even shards",
            "The first step is right",
        ),
        ([(EXCHANGE, "comm.Iallreduce(network.gradients, total)")], "Even shards", "read before"),
        (
            [(EXCHANGE, "comm.Allreduce(network.gradients, network.gradients)")],
            "One rank alone",
            "two arrays",
        ),
        ([(EXCHANGE, "comm.Allreduce(value, total)")], "One rank alone", "capital letter"),
        (
            [("empty_like(network.gradients)", "empty_like(network.gradients, dtype='f4')")],
            "One rank alone",
            "type float64 and receives",
        ),
        (
            [(EXCHANGE, "comm.Reduce_scatter(network.gradients, total)")],
            "One rank alone",
            "they support Allreduce",
        ),
        (
            [(EXCHANGE, "raise IndexError('gone')")],
            "One rank alone",
            "IndexError: gone (line 7: raise IndexError('gone'))",
        ),
        ([(EXCHANGE, "raise SystemExit")], "One rank alone", "stopped with SystemExit"),
        (
            [("return comm.allreduce(value)", "return None")],
            "The loss is that of the whole batch",
            "None was returned",
        ),
        (
            [
                (
                    EXCHANGE,
                    "shelf[comm.rank] = network.gradients.copy(); comm.Barrier()\n"
                    "    total = sum(shelf[r] for r in range(comm.size)); comm.Barrier()",
                )
            ],
            "Target: the gradients travel once",
            "only comm is shared",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_steps_that_only_look_right_are_diagnosed(checks, solution, changes, law, said):
    findings = checks(ONE).findings(variant(solution(ONE), *changes), "x")
    assert said in words(findings, law), as_text(findings)


def test_the_same_error_is_reported_once(checks, solution):
    step = variant(solution(ONE), (EXCHANGE, "comm.Alltoall(total)"))
    assert as_text(checks(ONE).findings(step, "x")).count("do not support it") == 1


@pytest.mark.parametrize(
    "changes",
    [
        [(POST, "comm.Iallreduce(send, receive, op=MPI.SUM)")],
        [(POST, "comm.Iallreduce([send, MPI.DOUBLE], [receive, MPI.DOUBLE])")],
        [
            ("np.empty_like(network.gradients)", "network.gradients"),
            (POST, "comm.Iallreduce(MPI.IN_PLACE, send)"),
        ],
        [(WAIT, "\n        while not request.Test():\n            pass")],
        [("stop = start\n", "stop = start\n        [request.Test() for request in requests]\n")],
        [
            (
                "return comm.allreduce(value)",
                "told = np.zeros(1); comm.Allreduce(np.array([value]), told); return told",
            )
        ],
    ],
    ids=lambda changes: changes[0][1][:60],
)
def test_other_right_overlaps_pass_all_but_perhaps_the_target(checks, solution, changes):
    *others, target = checks(TWO).findings(variant(solution(TWO), *changes), "x")
    assert passed(others), as_text(others)
    assert target.right is not None


@pytest.mark.parametrize(
    ("changes", "law", "said"),
    [
        ([(POST, "comm.Iallreduce(send.copy(), receive)")], "ONCE", "sends copies"),
        (
            [(f"requests.append({POST})", "receive[:] = comm.allreduce(send)")],
            "ONCE",
            "sums of arrays",
        ),
        (
            [
                (
                    "stop = start\n",
                    "stop = start\n        while requests and not requests[-1].Test(): pass\n",
                )
            ],
            "RUNS",
            "during its pauses",
        ),
        (
            [("for request in requests:", "MPI.Request.Waitall(requests)\n    for request in []:")],
            "ALL",
            "one by one",
        ),
        ([("return comm.allreduce(value)", "return value")], "EQUAL", "the loss that is returned"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_overlaps_that_only_look_right_are_diagnosed(checks, solution, changes, law, said):
    own = checks(TWO)
    findings = own.findings(variant(solution(TWO), *changes), "x")
    assert said in words(findings, getattr(own, law)), as_text(findings)


def test_a_loop_that_does_not_end_is_waited_for_once(checks, solution, monkeypatch):
    step = variant(solution(ONE), (EXCHANGE, "[0 for _ in iter(int, 1)]"))
    monkeypatch.setattr(emulate, "__defaults__", (*emulate.__defaults__[:-1], 0.2))
    alone, *others = checks(ONE).findings(step, "x")
    assert "which loop never ends" in alone.words
    assert len(others) == 6 and all(each.right is None for each in others)
