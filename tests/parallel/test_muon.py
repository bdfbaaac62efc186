"""Muon with a sharded state: what replicas gather, which of them computes what, and what is refused."""

from contextlib import nullcontext

import numpy as np
import pytest

from lib_dlhpc import Experiment, predict
from lib_dlhpc.costs.muon import matrices_of, orthogonalized, rest, seconds
from lib_dlhpc.costs.roofline import orthogonal_rate
from lib_dlhpc.errors import SpecError
from lib_dlhpc.layout import parts, shards
from lib_dlhpc.parallel import program
from lib_dlhpc.parallel.data_parallel import cut
from lib_dlhpc.parallel.muon import LABEL, gathered_momentum, orthogonalization_time
from lib_dlhpc.prediction.reports.explain import explain
from lib_dlhpc.program import Collective
from lib_dlhpc.program.proof import prove
from lib_dlhpc.simulation import simulate
from lib_dlhpc.timeline import breakdown
from lib_dlhpc.training.data import share

SMALL = {"family": "llama", "layers": 3, "hidden": 64, "heads": 4, "kv_heads": 2}
SMALL |= {"feed_forward": 160, "sequence": 32, "vocabulary": 512}


def run_of(model=SMALL, **strategy):
    each = {"nodes": 1, "batch": 2, "precision": "bf16", "optimizer": "muon", **strategy}
    return Experiment(model=model, machine="h100-pod", strategy=each)


def touched(run):
    """Return the seconds of each replica, counted one by one; units are buckets, slices those of the trainer."""
    (part,), ranks, device = parts(run, 0), shards(run), run.machine.device
    found = np.zeros(ranks)
    of_layer = {}
    for layer, each in matrices_of(part.model):
        of_layer.setdefault(layer, []).append(each)
    for bucket in cut(run, part):
        layers, at = part.model.layers[bucket.first : bucket.stop], 0
        size = sum(layer.parameters for layer in layers)
        for number, layer in enumerate(layers, bucket.first):
            for each in of_layer.get(number, ()):  # a dense layer of this network has one tensor
                for rank in range(ranks):
                    own = share(size, rank, ranks)
                    if own.start < at + each.elements and at < own.stop and own.start < own.stop:
                        found[rank] += seconds(each, device, orthogonal_rate(device))
            at += layer.parameters
    return found


@pytest.mark.parametrize("bucket", [1.0, 2e5, 25e6])
@pytest.mark.parametrize("zero", [1, 2, 3])
def test_the_busiest_replica_computes_the_matrices_that_its_slices_touch(zero, bucket):
    run = run_of(zero=zero, bucket=bucket)
    assert orthogonalization_time(run, parts(run, 0)) == pytest.approx(touched(run).max())


def test_with_a_bucket_for_each_layer_every_replica_computes_all_with_one_for_all_a_part():
    alone = orthogonalization_time(run := run_of(), parts(run, 0))
    every, some = (
        orthogonalization_time(run, parts(run, 0))
        for run in (run_of(zero=1, bucket=1.0), run_of(zero=1, bucket=25e6))
    )
    assert every == pytest.approx(alone)
    assert alone / 8 < some < alone / 3


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_the_momentum_of_all_matrices_is_gathered_once_before_the_update(zero):
    run = run_of(zero=zero)
    (held,) = (parts(run, 0),)
    found = gathered_momentum(run, held)
    assert sum(each.elements for each in found) == orthogonalized(run.model)
    step = program(run)
    prove([step])
    rows = [row[0] for row in step.end]
    labels = [each.label for each in rows if isinstance(each, Collective)]
    assert labels.count(LABEL) == len(found) > 0
    for other in (run_of(zero=zero, optimizer="adam"), run_of(zero=0)):
        assert gathered_momentum(other, parts(other, 0)) == []


@pytest.mark.parametrize("strategy", [{}, {"zero": 1}, {"zero": 3}, {"pipeline": 2, "zero": 1}])
def test_prediction_and_simulation_agree(strategy):
    run = run_of(microbatches=2, **strategy)
    run = run.set({"machine.jitter": 0.0})
    predicted, simulated = predict(run), breakdown(simulate(run))
    assert simulated.step_time == pytest.approx(predicted.step_time, rel=1e-9)
    assert predicted.update > predict(run.set({"strategy.optimizer": "momentum"})).update


def test_the_state_is_half_of_adams_for_matrices():
    for zero, replicas in ((0, 1), (1, 8), (3, 8)):
        memory = predict(run_of(zero=zero)).memory
        model = run_of().model
        expected = 4 * orthogonalized(model) + 8 * rest(model, "muon")
        assert memory["optimizer state"] == pytest.approx(expected / replicas)


@pytest.mark.parametrize(
    ("strategy", "legal"),
    [
        ({"tensor": 2}, "legal: 1."),
        ({"zero": 1, "offload": "all"}, "legal: 'none', 'activations'."),
        ({"update": "asynchronous"}, "legal: 'synchronous', 'local'."),
        ({"lora": 8}, "legal: 0."),
        ({"zero": 1, "experts": 2}, "strategy.zero above 0; legal: 1."),
        ({"experts": 2}, ""),
        ({"update": "local", "local_steps": 4}, ""),
    ],
)
def test_what_is_not_modeled_is_refused(strategy, legal):
    model = "mixtral-8x7b" if "experts" in strategy else SMALL
    with pytest.raises(SpecError, match=legal) if legal else nullcontext():
        run_of(model, **strategy)


def test_the_bucket_decides_the_update_of_llama():
    """The figures of docs/limits.md: 64 H100, ZeRO 1."""
    how = {"nodes": 8, "batch": 8, "zero": 1, "recompute": "full"}
    small, large = (predict(run_of("llama3-8b", bucket=bucket, **how)) for bucket in (25e6, 10e9))
    assert [small.update, large.update] == pytest.approx([0.90, 0.04], rel=0.02)
    assert large.step_time == pytest.approx(7.9, abs=0.05)
    assert large.update / large.step_time == pytest.approx(0.005, abs=0.0005)


def test_the_explanation_of_the_computation_states_the_iterations():
    (found,) = (each for each in explain(predict(run_of())) if each.name == "compute")
    assert any("orthogonalize" in name for name, *_ in found.inputs)
