"""Each rule against a few lines written from its paper, five steps in float64, and LARS pitfalls."""

import tracemalloc

import numpy as np
import pytest

from lib_dlhpc.spec.networks import build
from lib_dlhpc.spec.strategy import OPTIMIZERS
from lib_dlhpc.spec.training import Training
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.optimizers import RULES, Optimizer

RATE, DECAY, MOMENTUM, TRUST = 0.3, 0.02, 0.8, 0.05
TRAINING = Training(momentum=MOMENTUM, weight_decay=DECAY, trust=TRUST)


def network_of(dtype=np.float64):
    network = Network(build("mlp", {"widths": [5, 4, 3]}), dtype, seed=3)
    network.weights += np.random.default_rng(0).normal(0, 0.1, network.weights.size).astype(dtype)
    return network


def gradients(step, size):
    return np.random.default_rng([step, 9]).normal(0, 0.5, size)


def trained(name, training=TRAINING, steps=5):
    network, rule = network_of(), Optimizer(name, training)
    for step in range(steps):
        network.gradients[...] = gradients(step, network.gradients.size)
        rule.update(network, RATE)
    return network.weights


def reference(rule, training=TRAINING, steps=5):
    """The same with one tensor at a time; rule(w, g, memory, step, decay) changes w."""
    network = network_of()
    for parameter in network.parameters:
        part = slice(parameter.start, parameter.stop)
        w, memory = network.weights[part], {}
        decay = training.weight_decay if parameter.name.endswith("weight") else 0.0
        for step in range(steps):
            g = gradients(step, network.gradients.size)[part]
            rule(w, g, memory, step + 1, decay, parameter.name.endswith("weight"))
    return network.weights


def sgd(w, g, memory, t, decay, weight):
    w -= RATE * (g + decay * w)


def momentum(w, g, memory, t, decay, weight):
    v = memory["v"] = MOMENTUM * memory.get("v", 0) + g + decay * w
    w -= RATE * v


def lars(w, g, memory, t, decay, weight):
    """You et al. 2017, algorithm 1; the reference rule for known pitfalls: |w| / (|g| + decay |w|)."""
    length = np.linalg.norm(w)
    ratio = length / (np.linalg.norm(g) + decay * length) if weight else 1.0
    v = memory["v"] = MOMENTUM * memory.get("v", 0) + RATE * TRUST * ratio * (g + decay * w)
    w -= v


def adam(w, g, memory, t, decay, weight, apply=True):
    m = memory["m"] = 0.9 * memory.get("m", 0) + 0.1 * g
    v = memory["v"] = 0.999 * memory.get("v", 0) + 0.001 * g**2
    step = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8) + decay * w
    if apply:
        w -= RATE * step
    return step


def lamb(w, g, memory, t, decay, weight):
    step = adam(w, g, memory, t, decay, weight, apply=False)
    ratio = np.linalg.norm(w) / np.linalg.norm(step) if weight else 1.0
    w -= RATE * ratio * step


def muon(w, g, memory, t, decay, weight):
    """Jordan et al. 2024, with the scale of Liu et al. 2025; rows and columns: those of the network's two matrices."""
    if not weight:
        adam(w, g, memory, t, decay, weight)
        return
    v = memory["v"] = MOMENTUM * memory.get("v", 0) + g
    x = (g + MOMENTUM * v).reshape({20: (5, 4), 12: (4, 3)}[w.size])
    x, longest = x.T / (np.linalg.norm(x) + 1e-7), max(x.shape)
    for _ in range(5):
        x = 3.4445 * x - 4.7750 * (x @ x.T @ x) + 2.0315 * (x @ x.T @ x @ x.T @ x)
    w -= RATE * (0.2 * np.sqrt(longest) * x.T.ravel() + decay * w)


RULE = {"sgd": sgd, "momentum": momentum, "lars": lars, "adam": adam, "lamb": lamb, "muon": muon}


@pytest.mark.parametrize("decay", [DECAY, 0.0])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_rule_is_its_papers(name, decay):
    training = Training(momentum=MOMENTUM, weight_decay=decay, trust=TRUST)
    ours = trained(name, training)
    # Small singular values grow up to 485-fold in Newton-Schulz iterations, and rounding with them.
    rounding = {"rtol": 1e-9, "atol": 1e-11} if name == "muon" else {"rtol": 1e-12, "atol": 1e-14}
    np.testing.assert_allclose(ours, reference(RULE[name], training), **rounding)
    assert not np.allclose(ours, network_of().weights)


def test_there_is_a_rule_for_every_name():
    assert set(RULES) == set(OPTIMIZERS) == set(RULE)


def test_the_first_step_of_adam_is_the_rate_whatever_the_gradient():
    """Bias correction: without it the first steps would be far too short."""
    network, rule = network_of(), Optimizer("adam", Training(weight_decay=0.0))
    before = network.weights.copy()
    network.gradients[...] = gradients(0, network.gradients.size) * 1e-3
    rule.update(network, RATE)
    np.testing.assert_allclose(np.abs(network.weights - before), RATE, rtol=1e-2)


def test_with_lars_and_lamb_a_step_scales_with_the_norm_of_the_weights():
    for name in ("lars", "lamb"):
        training = Training(momentum=0.0, weight_decay=0.0, trust=TRUST)
        network, rule = network_of(), Optimizer(name, training)
        before = network.weights.copy()
        network.gradients[...] = gradients(0, network.gradients.size)
        scales = {0: 1e6, 1: 1e-6}  # layers are independent
        for parameter in network.parameters:
            part = slice(parameter.start, parameter.stop)
            network.gradients[part] *= scales.get(parameter.layer, 1.0)
        rule.update(network, RATE)
        rate = RATE * (TRUST if name == "lars" else 1.0)
        for parameter in network.parameters:
            if parameter.decays:
                part = slice(parameter.start, parameter.stop)
                moved = np.linalg.norm(network.weights[part] - before[part])
                assert moved == pytest.approx(rate * np.linalg.norm(before[part]))


@pytest.mark.parametrize("name", ["lars", "lamb"])
def test_weights_of_zero_are_still_updated(name):
    """|w| = 0 would make the local rate 0, and a bias of zeros would never change."""
    network, rule = network_of(), Optimizer(name, TRAINING)
    network.weights.fill(0)
    network.gradients[...] = gradients(0, network.gradients.size)
    rule.update(network, RATE)
    assert (network.weights != 0).all()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_without_gradients_only_decay_changes_weights(name):
    for decay in (0.0, DECAY):
        network = network_of()
        rule = Optimizer(name, Training(weight_decay=decay, trust=TRUST))
        before = network.weights.copy()
        network.gradients.fill(0)
        rule.update(network, RATE)
        assert np.isfinite(network.weights).all()
        for parameter in network.parameters:
            part = slice(parameter.start, parameter.stop)
            shrinks = decay and parameter.decays
            smaller = np.linalg.norm(network.weights[part]) < np.linalg.norm(before[part])
            assert smaller if shrinks else (network.weights[part] == before[part]).all()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_single_precision_stays_single(name):
    network, rule = network_of(np.float32), Optimizer(name, TRAINING)
    network.gradients[...] = gradients(0, network.gradients.size)
    rule.update(network, RATE)
    assert network.weights.dtype == network.gradients.dtype == np.float32
    assert all(memory.dtype == np.float32 for memory in rule.state.values())


@pytest.mark.parametrize("name", sorted({*OPTIMIZERS} - {"muon"}))  # which has copies of a matrix
def test_an_update_needs_no_memory_but_its_state(name):
    """The ledger has a term for the state and none for temporary arrays."""
    network = Network(build("mlp", {"widths": [1024, 1024, 10]}), np.float32)
    rule = Optimizer(name, TRAINING)
    rule.update(network, RATE)  # creates the state
    tracemalloc.start()
    rule.update(network, RATE)
    assert tracemalloc.get_traced_memory()[1] < network.weights.nbytes / 4
    tracemalloc.stop()


def test_muons_second_moments_of_matrices_are_never_touched():
    """The ledger counts one number for an element of a matrix, and two for the rest."""
    network, rule = network_of(), Optimizer("muon", TRAINING)
    for step in range(3):
        network.gradients[...] = gradients(step, network.gradients.size)
        rule.update(network, RATE)
    for parameter in network.parameters:
        part = slice(parameter.start, parameter.stop)
        assert rule.state["second"][part].any() == (parameter.matrices is None)
        assert rule.state["first"][part].all()
