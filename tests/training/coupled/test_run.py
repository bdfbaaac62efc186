"""A coupled run on one rank: it learns the equation, in the order of the samples, and reports its time breakdown."""

from dataclasses import replace

import numpy as np
import pytest
from small_workflow import small

from lib_dlhpc.errors import SpecError
from lib_dlhpc.timeline.coupled import coupled_terms
from lib_dlhpc.training.coupled.measure import line_through, measure, timed_kernels
from lib_dlhpc.training.coupled.run import couple


@pytest.fixture
def alone(require):
    """A communicator of this process."""
    mpi = pytest.importorskip("mpi4py.MPI")
    require(mpi.COMM_SELF.size == 1, "no MPI")
    return mpi.COMM_SELF


def longer(workflow, steps, **simulation):
    return replace(workflow, simulation=replace(workflow.simulation, steps=steps, **simulation))


def test_it_learns_what_the_equation_does_and_its_diffusivity(alone):
    workflow = longer(small("shared"), 6400, sampling=4)
    slower = workflow.experiment.set({"training.decay": "cosine"})
    workflow = replace(workflow, experiment=slower)
    result = couple(workflow, alone)
    before, after = result.errors
    assert before > 1  # worse than to predict no change
    assert after < 0.2
    assert result.diffusivity == pytest.approx(workflow.simulation.diffusivity, rel=0.15)
    assert result.losses[-1] < 0.01 * result.losses[0]
    assert result.steps == workflow.batches


def test_the_depth_changes_timing_and_not_results(alone):
    one, deep = (couple(small("shared", depth=depth), alone) for depth in (1, 5))
    assert np.array_equal(one.weights, deep.weights)
    order = [
        [row.name for row in run.timeline if row.name in ("simulate", "update")]
        for run in (one, deep)
    ]
    assert order[0] == ["simulate", "update"] * 12
    assert order[1] == (["simulate"] * 5 + ["update"] * 5) * 2 + ["simulate"] * 2 + ["update"] * 2


def test_other_samples_give_other_weights(alone):
    one = couple(small("shared"), alone)
    other = couple(longer(small("shared"), 96, seed=1), alone)
    assert not np.allclose(one.weights, other.weights, rtol=1e-6)


def test_terms_add_up_to_the_run(alone):
    result = couple(small("shared"), alone)
    terms = coupled_terms(result.timeline, result.seconds)
    whole = float(sum(terms.values())[0])
    assert whole == pytest.approx(max(result.seconds, float(result.timeline.stop.max())), rel=1e-6)
    assert terms["simulate"][0] > 0 < terms["train"][0]


def test_costs_that_are_missing_are_measured(alone):
    workflow = replace(small("shared"), costs=None)
    costs = measure(workflow, alone)
    assert costs.point > 0 < costs.sample
    assert min(costs.small_step, costs.update, costs.jitter) >= 0
    assert costs.latency == costs.byte == 0  # nobody to send to


def test_a_line_goes_through_both_points_and_is_never_negative():
    assert line_through([10, 20], [3.0, 5.0]) == pytest.approx((1.0, 0.2))
    # No cost may be negative.
    assert line_through([10, 20], [1.0, 4.0]) == pytest.approx((0.0, 0.2))
    least, each = line_through([10, 20], [4.0, 3.0])
    assert least > 0 < each
    assert least + 20 * each == pytest.approx(3.0)
    assert line_through([10], [3.0]) == pytest.approx((0.0, 0.3))


def test_kernels_alternate():
    turns = []
    assert len(timed_kernels([lambda: turns.append(0) or 1, lambda: turns.append(1) or 1])) == 2
    changes = np.count_nonzero(np.diff(turns))
    assert changes >= 12


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"strategy.precision": "fp16"}, "strategy.precision = 'fp16': a workflow is trained with"),
        ({"strategy.allreduce": "rabenseifner"}, "strategy.allreduce = 'rabenseifner'"),
        ({"training.sparsity": 0.9, "strategy.optimizer": "sgd"}, "training.sparsity = 0.9"),
        ({"training.shift": 1}, "training.shift = 1"),
    ],
)
def test_what_cannot_be_trained_is_refused_by_name(alone, change, message):
    workflow = small("shared")
    workflow = replace(workflow, experiment=workflow.experiment.set(change))
    with pytest.raises(SpecError, match=message):
        couple(workflow, alone)
