"""Derivations end with what the library says, and each of their lines follows from the one before."""

from itertools import pairwise
from math import log, sqrt

import numpy as np
import pytest

from lib_dlhpc.explore.allreduce import derivation as ring
from lib_dlhpc.explore.course import PATH
from lib_dlhpc.explore.failures import derivation as failing
from lib_dlhpc.explore.hybrid_parallel import derivation as layer
from lib_dlhpc.explore.large_batch import derivation as batch
from lib_dlhpc.explore.memory_wall import derivation as zero
from lib_dlhpc.explore.slides.notebook import notebook_text
from lib_dlhpc.explore.slides.slide import BOARD
from lib_dlhpc.explore.slides.sources import derivations
from lib_dlhpc.explore.slides.tex import readable

NUMBERS = ("02", "03", "04", "05", "06", "07", "08", "09", "12")
MODULES = {module.number: module for module in PATH if module.number in NUMBERS}


@pytest.fixture(scope="module")
def derived(repository):
    """Return the derivations of modules by number."""
    folder = repository / "modules"
    return {number: derivations(notebook_text(folder / MODULES[number].file)) for number in NUMBERS}


@pytest.mark.parametrize("number", NUMBERS)
def test_a_derivation_ends_with_what_the_library_says(derived, number):
    assert 1 <= len(derived[number]) <= 2
    for each in derived[number]:
        assert each.derived == pytest.approx(each.library, rel=1e-3), each.title


@pytest.mark.parametrize("number", NUMBERS)
def test_a_derivation_fits_a_slide(derived, number):
    """Three to five lines; a formula is as long as a line, a reason three of them."""
    for each in derived[number]:
        assert 4 <= len(each.steps) <= 5 and len(each.title) < 50, each.title
        for step in each.steps:
            assert len(readable(step.tex)) <= 60, step.tex
            assert 20 < len(step.because) <= 100 and step.because.endswith("."), step.because
            assert step.because[0].isupper() or step.because[1] == " ", step.because
        assert len(each.numbers) <= 150 and any(map(str.isdigit, each.numbers)), each.title
        assert each.notes.count("Ask") + each.notes.count("Draw") + each.notes.count("let") >= 1
        assert len(each.notes.split()) > 40, each.title


@pytest.mark.parametrize("number", NUMBERS)
def test_slides_of_a_derivation_follow_the_board(decks, derived, number):
    slides = decks[MODULES[number].name]
    shown = [slide for slide in slides if slide.stepwise]
    assert [slide.title for slide in shown] == [each.title for each in derived[number]]
    for before, slide in pairwise(slides):
        assert not slide.stepwise or before.stepwise or before.kind == BOARD
    for slide, each in zip(shown, derived[number], strict=True):
        assert slide.formulas == tuple(step.tex for step in each.steps)
        assert slide.lines == (*(step.because for step in each.steps), each.numbers)
        assert all(readable(step.tex) in slide.notes for step in each.steps)
        assert each.notes in slide.notes


def test_modules_without_a_derivation_have_none(decks):
    names = {module.name for module in MODULES.values()}
    assert not any(slide.stepwise for name in decks if name not in names for slide in decks[name])


def test_overlap_hides_the_smaller_of_both_but_for_one_bucket():
    """The queue, its unrolled form, and the form for equal buckets."""
    draw = np.random.default_rng(0)
    for _ in range(50):
        count, backward, each = int(draw.integers(1, 9)), draw.uniform(1, 9), draw.uniform(0.1, 5)
        ready, cost = backward * np.arange(1, count + 1) / count, np.full(count, each)
        end = 0.0
        for full, takes in zip(ready, cost, strict=True):
            end = max(full, end) + takes
        unrolled = max(ready[k] + cost[k:].sum() for k in range(count))
        equal = max(backward + each, backward / count + count * each)
        assert end == pytest.approx(unrolled) == pytest.approx(equal)
        hidden = min((count - 1) * each, (count - 1) / count * backward)
        assert count * each - (end - backward) == pytest.approx(hidden)


def test_a_ring_is_its_two_halves_and_wins_from_its_crossover(derived):
    p, n, alpha, beta, gamma = ring.RANKS, ring.SIZE, ring.LATENCY, ring.beta, ring.gamma
    halves = (p - 1) * (2 * alpha + 2 * n / p * beta + n / p * gamma)
    assert halves == pytest.approx(derived["03"][0].derived)
    for factor, wins in ((0.9, False), (1.1, True)):
        size = factor * ring.crossover
        both = (ring.seconds(name, size, 1e30) for name in ("ring", "recursive_doubling"))
        assert (next(both) < next(both)) is wins


@pytest.mark.parametrize(("stages", "count"), [(1, 5), (3, 4), (8, 32)])
def test_a_pipeline_takes_m_plus_p_minus_one_passes_each_way(stages, count):
    """Each pass after the one before on its stage, and after the same microbatch on the stage before."""
    forward, backward = 1.0, 2.5
    free = [0.0] * stages
    for takes, order in ((forward, range(stages)), (backward, reversed(range(stages)))):
        places = list(order)
        ready = np.zeros(count)
        start = max(free) if takes == backward else 0.0
        free = [start] * stages
        for microbatch in range(count):
            for stage in places:
                ready[microbatch] = free[stage] = max(ready[microbatch], free[stage]) + takes
    assert max(free) == pytest.approx((count + stages - 1) * (forward + backward))


def test_what_least_recently_used_hits_is_an_area():
    """Drawn uses: the share of which fewer than c others were read in between."""
    u, v = np.random.default_rng(0).random((2, 400_000))
    for share in (0.2, 0.5, 0.8):
        hits = share + (1 - share) * log(1 - share)
        assert (u + v - u * v < share).mean() == pytest.approx(hits, abs=3e-3)


def test_linear_scaling_ends_where_a_step_grows(derived):
    """The modes of momentum on a parabola are inside the unit circle below the limit, and not above it."""
    for factor, bounded in ((0.99, True), (1.01, False)):
        step = factor * derived["06"][0].derived * batch.CURVATURE
        modes = np.linalg.eigvals([[1 - step, -batch.MOMENTUM], [step, batch.MOMENTUM]])
        assert bool(abs(modes).max() < 1) is bounded


def test_young_s_interval_is_the_minimum_and_flat():
    least = failing.at(1.0)
    assert least == pytest.approx(sqrt(2 * failing.SAVE / failing.MTBF))
    assert min(failing.at(times) for times in (0.5, 0.9, 1.1, 2.0)) > least
    assert failing.at(2.0) == pytest.approx(1.25 * least) == pytest.approx(failing.at(0.5))


def test_activations_on_t_gpus_add_up():
    unit = layer.S * layer.B * layer.H
    assert 11 + 19 + 4 == 10 + 24 == 34
    assert layer.whole == pytest.approx(34 * unit + 5 * layer.A * layer.S**2 * layer.B)
    assert layer.replicated - 10 * unit == pytest.approx((layer.whole - 10 * unit) / layer.T)


def test_the_levels_of_zero_remove_what_they_shard():
    for level, own in enumerate(zero.levels):
        assert own == pytest.approx(zero.held(level)), level
