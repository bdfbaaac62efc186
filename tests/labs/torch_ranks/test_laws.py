"""The laws of the labs in PyTorch on recorded runs, without PyTorch."""

import importlib.util
import sys

import numpy as np
import pytest

from lib_dlhpc.labs.emulated.data_parallel_step import one_rank, task_of
from lib_dlhpc.labs.emulated.pipeline_step import Staged
from lib_dlhpc.labs.torch_ranks import runs
from lib_dlhpc.labs.torch_ranks.held import Held, one_rank_with_momentum, updated
from lib_dlhpc.schedules import PIPELINES, prove_pipeline


class Recorded:
    """A World that returns what was recorded."""

    def __init__(self, results):
        self.results = results

    def run(self, *request):
        return self.results


def torch_checks(checks, repository, lab):
    """The checks in PyTorch of a lab, which import those beside them."""
    file = repository / "labs" / lab / "torch_checks.py"
    sys.modules["checks"] = checks(lab)
    try:
        spec = importlib.util.spec_from_file_location(f"torch_checks_{lab}", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        del sys.modules["checks"]
    return module


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("ranks", "many"), [(2, 4), (4, 3)])
def test_a_pipeline_is_rebuilt_from_the_passes_that_ranks_did(name, ranks, many):
    right = PIPELINES[name](ranks, many)
    done = [
        [(type(do).__name__.lower(), do.microbatch) for do in stream if hasattr(do, "chunk")]
        for stream in right.streams
    ]
    staged = [Staged(np.zeros((1, 1)), [], each, [], 0, 0) for each in done]
    task = type("Task", (), {"ranks": ranks, "microbatches": many})
    _, performed = runs.pipeline(Recorded(staged), "step.py", "step", task)
    assert performed.streams == right.streams
    prove_pipeline(performed)


def test_what_ranks_updated_is_joined_or_refused():
    parts = [Held(np.full((3, 2), rank), 0, None, 0.0) for rank in range(2)]
    assert updated(parts, 4)[0].tolist() == [0, 0, 1, 1]
    assert updated(parts, 2) is None  # each all, and not alike
    assert updated(parts[:1], 2).shape == (3, 2)
    assert updated(parts, 5) is None


def test_momentum_moves_as_descent_at_first():
    task = task_of([64, 8, 10], 0, (2, 1), 0.1)
    assert np.array_equal(one_rank_with_momentum(task)[0], one_rank(task)[0][0])


# With buckets of 5, tensors of 3, 4 and 2 gradients leave as 7 and 2.
END = ("backward ends", 0)
RIGHT = [
    ("ready", 3),
    ("ready", 4),
    ("launch", 7),
    ("ready", 2),
    END,
    ("launch", 2),
    ("wait", 0),
    ("wait", 0),
]
WRONG = {
    "waited": RIGHT[:-1],
    "complete": [("ready", 3), ("launch", 7), ("ready", 4), *RIGHT[3:]],
    "once": [*RIGHT[:5], *RIGHT[6:]],
    "full": [("ready", 3), ("launch", 3), ("ready", 4), ("launch", 4), *RIGHT[3:], ("wait", 0)],
    "early": [("ready", 3), ("ready", 4), ("ready", 2), END, ("launch", 7), *RIGHT[5:]],
    "runs_on": [*RIGHT[:3], ("wait", 0), *RIGHT[3:-1]],
}


@pytest.fixture(scope="module")
def overlap(checks, repository):
    return torch_checks(checks, repository, "02_overlap")


@pytest.mark.parametrize("law", WRONG)
def test_events_in_the_right_order_hold_and_each_wrong_order_breaks_its_law(overlap, law):
    for each in WRONG:
        assert getattr(overlap, each)(5, RIGHT, 9).right, each
    assert getattr(overlap, law)(5, WRONG[law], 9).right is False


@pytest.mark.parametrize(
    ("zero", "bytes_", "view", "words"),
    [
        (1, 24 * 400, None, "that is ZeRO 0. Who still needs all of the momentum?"),
        (3, 8 * 400 + 16 * 100, (100, 400), "a slice is a view"),
        (0, 24 * 100, None, "that is ZeRO 3, which shards more"),
        (2, 30 * 400, None, "What else is still in memory"),
        (2, 8 * 400 + 16 * 100, None, ""),
    ],
)
def test_bytes_that_a_rank_holds_are_named_by_the_level(
    checks, repository, zero, bytes_, view, words
):
    fit = torch_checks(checks, repository, "06_fit_the_model")
    task = fit.task_for("x")
    right = one_rank_with_momentum(task)
    scale = right.shape[1] / 400
    view = view and (int(view[0] * scale), int(view[1] * scale))
    held = [Held(right, int(bytes_ * scale), view, 0.0)] * fit.RANKS
    found = fit.torch_findings(Recorded(held), "step.py", "x")
    finding = next(each for each in found if each.law == fit.law(zero, fit.HOLDS))
    assert finding.right is (not words) and words in finding.words
    assert all(each.right for each in found if each.law == fit.law(zero, fit.EQUAL))
