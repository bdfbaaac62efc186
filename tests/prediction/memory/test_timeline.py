"""Laws of a step's course: its highest point is the ledger's peak, and it lasts as long as the step computes."""

import numpy as np
import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.memory.rank_memory import peak, rank_columns
from lib_dlhpc.prediction.memory.timeline import BACKWARD, FORWARD, UPDATE, memory_timeline
from lib_dlhpc.spec.experiment import Experiment


def experiment(model, **strategy):
    return Experiment(
        model={"name": model},
        dataset={"name": "webtext" if "gpt" in model else "imagenet"},
        machine={"name": "selene", "jitter": 0.0},
        strategy={"devices_per_node": 1, "batch": 8, "precision": "fp16", **strategy},
    )


CASES = [
    (model, {"recompute": recompute, "microbatches": many})
    for model in ("resnet50", "vgg16", "gpt-1536x16")
    for recompute in ("none", "full", "selective", "light", "per-op", "early-stop")
    for many in (1, 4)
]


@pytest.mark.parametrize(("model", "strategy"), CASES)
def test_the_highest_point_is_the_ledgers_peak(model, strategy):
    own = experiment(model, **strategy)
    found = memory_timeline(own)
    assert found.bytes.max() == pytest.approx(peak(own).total, rel=1e-9)
    assert found.bytes.min() == pytest.approx(found.fixed)


@pytest.mark.parametrize(("model", "strategy"), CASES)
def test_it_lasts_as_long_as_the_step_computes(model, strategy):
    own = experiment(model, **strategy)
    found = memory_timeline(own)
    assert found.end == pytest.approx(float(predict(own).step_time), rel=1e-9)
    assert np.all(np.diff(found.time) >= 0) and found.time[-1] < found.end
    assert len(found.time) == len(found.bytes) == len(found.layer) == len(found.what)


def test_it_fills_forward_and_empties_backward():
    found = memory_timeline(experiment("gpt-1536x16"))
    ahead, back = (found.bytes[np.array(found.what) == word] for word in (FORWARD, BACKWARD))
    assert np.all(np.diff(ahead) >= 0)
    assert back[0] > 10 * (back[-1] - found.fixed)
    assert found.what[-1] == UPDATE and found.bytes[-1] == found.fixed


def test_what_is_made_again_comes_segment_by_segment():
    """Between two blocks little is held, so the curve has a tooth for each."""
    found = memory_timeline(experiment("gpt-1536x16", recompute="full"))
    back = found.bytes[np.array(found.what) == BACKWARD]
    large = back - found.fixed > 0.5 * (back.max() - found.fixed)
    assert np.count_nonzero(np.diff(large.astype(int)) == 1) >= 15


@pytest.mark.parametrize("strategy", [{"offload": "all"}, {"pipeline": 2, "devices_per_node": 2}])
def test_what_has_no_course_says_so(strategy):
    with pytest.raises(SpecError, match=r"pipeline = 1 and offload = 'none'"):
        memory_timeline(experiment("gpt-1536x16", **strategy))


@pytest.mark.parametrize(
    "schedule", [{"schedule": "interleaved", "chunks": 2}, {"schedule": "zb-h1"}], ids=str
)
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("model", ["resnet50", "gpt-1536x16"])
def test_without_a_pipeline_a_rank_holds_one_part(model, recompute, schedule):
    """As the trainer, and the price, which take all chunks as one; a tied table is there once."""
    plain = experiment(model, recompute=recompute, microbatches=4)
    other = plain.set({f"strategy.{name}": value for name, value in schedule.items()})
    assert predict(other).memory == predict(plain).memory
    assert rank_columns(other).fixed.tolist() == rank_columns(plain).fixed.tolist()
    found, expected = memory_timeline(other), memory_timeline(plain)
    assert found.bytes.tolist() == expected.bytes.tolist()
    assert found.layer == expected.layer
