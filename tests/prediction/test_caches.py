"""What was predicted before does not change a prediction: keys of caches hold all that their values depend on."""

import functools
import gc
import random

import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import Experiment

GPT = {"family": "gpt", "layers": 6, "hidden": 256, "heads": 4, "sequence": 64, "vocabulary": 64}
VALUES = {
    "tensor": [1, 2, 4],
    "pipeline": [1, 2, 4],
    "batch": [4, 8],
    "microbatches": [1, 2, 4],
    "schedule": ["gpipe", "1f1b", "zb-h1", "interleaved"],
    "zero": [0, 1, 2, 3],
    "shards": [0, 2, 4],
    "recompute": ["none", "light", "selective", "per-op", "early-stop", "full"],
    "offload": ["none", "none", "activations", "all"],
    "sequence_parallel": [False, True],
    "overlap": [False, True],
    "bucket": [1e5, 25e6],
    "precision": ["fp32", "bf16"],
    "wire": ["same", "same", "bf16"],
    "allreduce": ["auto", "ring"],
    "power_limit": [0.0, 0.0, 300.0],
}
MIXTURE = {  # of experts over one node or several
    "batch": [4, 8],
    "microbatches": [1, 4],
    "pipeline": [1, 2],
    "schedule": ["1f1b", "dualpipe"],
    "experts": [1, 2, 4, 8],
    "expert_exchange": ["direct", "by-device", "by-node"],
    "expert_wire": ["same", "fp8"],
    "precision": ["bf16", "fp8"],
    "recompute": ["none", "light"],
    "zero": [0, 1],
}
OTHERS = {
    "calibration.compute_scale": 1.3,
    "calibration.link_efficiency": 0.7,
    "machine.jitter": 0.05,
    "machine.inter_node.bandwidth": 1e10,
    "machine.device.dispatch": 1e-5,
    "machine.device.memory_bandwidth": 1e12,
}


def caches():
    """Return all caches of the package that depend on an experiment."""
    rooms = ("layout", "parallel", "program", "costs", "prediction")
    begins = tuple(f"lib_dlhpc.{room}" for room in rooms)
    gc.unfreeze()  # what was imported when the tests were collected, see conftest.py
    # By `type`: `isinstance` asks each object for its class, and a weak proxy of something gone raises then.
    every = [each for each in gc.get_objects() if type(each) is functools._lru_cache_wrapper]
    gc.freeze()
    return [each for each in every if (each.__module__ or "").startswith(begins)]


def numbers(run):
    prediction = predict(run)
    return {**prediction.terms, **prediction.memory, "energy": prediction.energy_to_train}


def test_a_warm_prediction_is_the_cold_one():
    dice, runs = random.Random(5), []
    base = Experiment(model=GPT, machine="selene", strategy={"batch": 8, "optimizer": "adam"})
    while len(runs) < 30:
        changes = {f"strategy.{name}": dice.choice(values) for name, values in VALUES.items()}
        try:
            twins = [base.set({**changes, "strategy.nodes": nodes}) for nodes in (1, 2)]
            name = dice.choice([*OTHERS])
            twins.append(twins[1].set({name: OTHERS[name]}))
            for run in twins:
                numbers(run)
        except SpecError:
            continue
        runs += twins  # in the same parts, with more replicas, and on another machine
    agree(runs)


def test_so_it_is_with_experts_in_one_node_or_in_several():
    """The same ranks and parts, in nodes of another size."""
    dice, runs = random.Random(6), []
    model = GPT | {"experts": 16, "chosen": 2}
    base = Experiment(model=model, machine="h800-pod", strategy={"optimizer": "adam"})
    while len(runs) < 30:
        changes = {f"strategy.{name}": dice.choice(values) for name, values in MIXTURE.items()}
        for node in dice.sample([1, 2, 4, 8], 4):
            changes |= {"strategy.nodes": 16 // node, "strategy.devices_per_node": node}
            try:
                run = base.set(changes)
                numbers(run)
            except SpecError:
                continue
            runs.append(run)
    assert {"direct", "by-device", "by-node"} == {run.strategy.expert_exchange for run in runs}
    agree(runs)


def agree(runs):
    """Compare what is predicted of each run behind all the others with what is predicted of it alone."""
    warm = [numbers(run) for run in runs]
    known_by_now = caches()
    assert sum(each.cache_info().currsize for each in known_by_now) > 0
    for run, known in zip(runs, warm, strict=True):
        for cache in known_by_now:
            cache.cache_clear()
        assert numbers(run) == pytest.approx(known, rel=1e-12, abs=1e-300), run.strategy
