"""The labs in PyTorch: the starter fails, the solution passes, each mistake is named; what hangs is explained."""

import importlib.util
import sys

import pytest

from lib_dlhpc.labs.emulated.data_parallel_step import task_of
from lib_dlhpc.labs.findings import passed
from lib_dlhpc.labs.mistakes import Endless, LabError, Mismatch
from lib_dlhpc.labs.program import Unusable
from lib_dlhpc.labs.torch_ranks.runs import data_parallel
from lib_dlhpc.labs.torch_ranks.world import World

FOLDERS = {
    "01": "01_data_parallel_step",
    "02": "02_overlap",
    "04": "04_pipeline",
    "06": "06_fit_the_model",
}


@pytest.fixture(scope="module")
def world():
    """Processes that all tests share: to import torch takes longer than most of what they do."""
    with World(4) as world:
        yield world


def module_at(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def lab(repository):
    """A function: a lab's checks in PyTorch, its starter's file, and its solution as module and file."""

    def loaded(number):
        folder = repository / "labs" / FOLDERS[number]
        sys.modules["checks"] = module_at(folder / "checks.py", "checks")
        try:
            checks = module_at(folder / "torch_checks.py", f"torch_checks_{number}")
        finally:
            del sys.modules["checks"]
        solution = repository / "instructor_notes" / "solutions" / f"torch_lab_{number}.py"
        return checks, folder / "torch_starter.py", module_at(solution, f"torch_{number}"), solution

    return loaded


def by_law(findings):
    return {each.law: each for each in findings}


def test_lab_1_starter_fails_and_solution_passes(lab, world):
    checks, starter, _, solution = lab("01")
    found = by_law(checks.torch_findings(world, starter, "your name"))
    assert found["By hand: One rank alone"].right
    assert found["By hand: Even shards"].right is False
    assert found["DDP: Even shards"].right and found["DDP: Uneven shards"].right is False
    assert passed(checks.torch_findings(world, solution, "your name"))


def test_lab_1_each_mistake_is_named(lab, world):
    checks, _, solution, file = lab("01")
    for ddp, mistakes in ((False, solution.MISTAKES), (True, solution.DDP_MISTAKES)):
        for mistake, (law, words) in mistakes.items():
            found = checks.findings(mistake.__name__, "x", data_parallel(world, file, ddp))
            finding = by_law(found)[law]
            assert finding.right is False and words in finding.words, (mistake.__name__, finding)


def test_lab_2_starter_leaves_late_and_solution_passes(lab, world):
    checks, starter, _, solution = lab("02")
    found = checks.torch_findings(world, starter, "your name")
    assert [each.law for each in found if not each.right] == [checks.FULL, checks.EARLY]
    assert passed(checks.torch_findings(world, solution, "your name"))


def test_lab_2_each_mistake_is_named(lab, world):
    checks, _, solution, file = lab("02")
    for mistake, (law, words) in solution.MISTAKES.items():
        finding = by_law(checks.torch_findings(world, file, "x", mistake))[law]
        assert finding.right is False and words in finding.words, (mistake, finding)


def test_lab_4_starter_waits_and_solution_passes(lab, world):
    checks, starter, _, solution = lab("04")
    found = checks.torch_findings(world, starter, "your name")
    assert [each.law for each in found if not each.right] == [checks.ONE]
    assert "No two ranks ever compute at the same time" in by_law(found)[checks.ONE].words
    assert passed(checks.torch_findings(world, solution, "your name"))


def test_lab_4_each_mistake_is_named(lab, world):
    checks, _, solution, file = lab("04")
    for mistake, (law, words) in solution.MISTAKES.items():
        finding = by_law(checks.torch_findings(world, file, "x", mistake.__name__))[law]
        assert finding.right is False and words in finding.words, (mistake.__name__, finding)


def test_lab_6_starter_is_right_for_level_0_and_solution_passes(lab, world):
    checks, starter, _, solution = lab("06")
    found = by_law(checks.torch_findings(world, starter, "your name"))
    for zero in (1, 2, 3):
        finding = found[checks.law(zero, checks.HOLDS)]
        assert finding.right is False and "that is ZeRO 0" in finding.words
    assert sum(not each.right for each in found.values()) == 4  # and FSDP
    assert passed(checks.torch_findings(world, solution, "your name"))


def test_lab_6_each_mistake_is_named(lab, world):
    checks, _, solution, file = lab("06")
    for functions, (law, words) in solution.MISTAKES.items():
        names = [each.__name__ for each in functions]
        finding = by_law(checks.torch_findings(world, file, "x", *names))[law]
        assert finding.right is False and words in finding.words, (names, finding)


WRONG = {
    "raise IndexError('gone')": (LabError, "rank 1 stopped with step.py, line 6"),
    "import os; os._exit(3)": (LabError, "The process of rank 1 has ended"),
    "dist.broadcast(x, 0, group)": (Mismatch, "the same calls in the same order"),
    "dist.recv(torch.ones(1), 0)": (Endless, "rank 1 is in or after recv, peer 0"),
}
STEP = """import torch
import torch.distributed as dist

def step(network, loss, x, y, group, rate):
    if group.rank() == 1:
        {}
    dist.all_reduce(torch.ones(1), group=group)
"""


def test_what_stops_is_explained_and_the_next_run_works(tmp_path):
    file, task = tmp_path / "step.py", task_of([64, 8, 10], 0, (2, 1), 0.1)
    with World(2) as world:
        for wrong, (error, words) in WRONG.items():
            world.seconds = 10.0 if error is Endless else 60.0
            file.write_text(STEP.format(wrong))
            with pytest.raises(error, match=words):
                data_parallel(world, file)("step", task)
        with pytest.raises(Unusable, match=r"step.py does not define other"):
            data_parallel(world, file)("other", task)
        file.write_text(STEP.format("pass"))
        assert data_parallel(world, file)("step", task).weights.shape[:2] == (2, 3)
