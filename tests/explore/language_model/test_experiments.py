"""The lesson on language models: every control moves something, causes add up, walls say why, a run reports itself."""

from typing import Any

import numpy as np
import pytest
from experiment_page import Now, button, result_text

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.language_model import (
    bubbles,
    experts,
    here,
    layout,
    questions,
    rollouts,
    sequences,
)
from lib_dlhpc.explore.language_model.bubbles import (
    ALL,
    SCHEDULES,
    bubble,
    fullest,
    simulated_bubble,
)
from lib_dlhpc.explore.language_model.bubbles import Setting as Pipe
from lib_dlhpc.explore.language_model.charts import CAUSES, HATCHED, causes
from lib_dlhpc.explore.language_model.experts import Setting as Mixture
from lib_dlhpc.explore.language_model.here import LAYOUTS, Ran, layouts_here, result_html
from lib_dlhpc.explore.language_model.here import Setting as Here
from lib_dlhpc.explore.language_model.layout import Setting as Layout
from lib_dlhpc.explore.language_model.layout import predicted, the_layout
from lib_dlhpc.explore.language_model.rollouts import Setting as Learned
from lib_dlhpc.explore.language_model.sequences import Setting as Long
from lib_dlhpc.explore.language_model.sequences import curves, the_sequence


def test_nothing_is_said_by_color_alone():
    plain = [color for cause, color in CAUSES.items() if cause not in HATCHED]
    assert len(set(plain)) == len(plain)
    plain = [color for part, color in rollouts.PARTS.items() if part not in rollouts.HATCHED]
    assert len(set(plain)) == len(plain)


# a layout -------------------------------------------------------------------------------------------


def test_causes_add_up_to_the_step_whatever_the_layout():
    settings = (Layout(), layout.ALONE, Layout(context=2, recompute="full"))
    for step in (*map(predicted, settings), experts.predicted(Mixture())):
        assert sum(causes(step).values()) == pytest.approx(float(step.step_time))


def test_more_replicas_than_sequences_are_refused_in_words():
    with pytest.raises(SpecError, match=r"4,096 replicas, and a step has 2,048 sequences"):
        the_layout.view(Layout(tensor=4, pipeline=1))
    assert int(layout.experiment(layout.ALONE).strategy.batch) == 1


def test_a_layout_says_whether_it_fits_and_is_as_fast_as_published():
    assert "within the published" in the_layout.view(Layout()).fine
    assert "slow" in the_layout.view(Layout(schedule="1f1b")).fine
    view = the_layout.view(Layout(pipeline=8))
    assert view.wall.startswith("Memory:") and not view.fine


# bubbles --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_simulated_bubble_is_the_predicted_one(schedule):
    setting = Pipe(8, 8, schedule)
    assert simulated_bubble(setting) == pytest.approx(bubble(setting), rel=0.02)
    warned = "holds all of a microbatch" in bubbles.bubble_words(setting)
    assert warned == (schedule == bubbles.SCHEDULES[-1])


def test_a_smaller_bubble_has_its_price():
    one, most, apart = (Pipe(schedule=each) for each in (SCHEDULES[0], ALL, SCHEDULES[-1]))
    assert bubble(most) < bubble(apart) < bubble(one)
    assert fullest(apart)[1] > 1.5 * fullest(one)[1] and fullest(apart)[0] > fullest(one)[0]


def test_eight_lanes_are_a_rank_of_eight_stages():
    for stages in (8, 16):
        rows = bubbles.the_bubble.view(Pipe(stages, 8)).charts["gantt"]["data"]["ranks"]
        assert len(next(iter(rows.values()))) == 8


# sequences ------------------------------------------------------------------------------------------


def test_the_longer_a_sequence_the_less_is_exposed():
    for setting in (Long(), Long(context=32, nics=1)):
        for _, shares in curves(setting).values():
            assert (np.diff(shares) < 0).all()


def test_heads_that_cannot_be_divided_have_no_line():
    assert set(curves(Long())) == {"ring", "heads"} and set(curves(Long(context=16))) == {"ring"}
    assert "cannot be divided" in the_sequence.view(Long(context=16)).charts["llm_context"][1]
    with pytest.raises(SpecError, match="8 heads of keys and values"):
        the_sequence.view(Long(context=16, exchange="heads"))


def test_an_exchange_that_is_not_hidden_says_so():
    assert not the_sequence.view(Long()).fine
    assert "not hidden" in the_sequence.view(Long(context=32, nics=1)).fine


def test_every_length_has_the_same_tokens_in_a_step():
    for length in sequences.LENGTHS:
        run = sequences.experiment(Long(length, 4))
        assert int(run.global_batch) * length == sequences.TOKENS


# experts --------------------------------------------------------------------------------------------


def test_experts_in_a_node_exchange_faster_and_need_more_memory():
    near, far = (experts.predicted(Mixture(experts=ranks)) for ranks in (8, 64))
    assert near.exposed["experts"] < 0.5 * far.exposed["experts"]
    assert far.fits and not near.fits


def test_the_published_step_is_gpu_hours_over_gpus():
    tokens = 15_360 * 4_096
    hours = experts.published_step() * 2048 / 3600
    assert hours / tokens * 1e12 == pytest.approx(180_000)


# rollouts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", [Learned(), Learned(pool=2), Learned(spread=0.0, samples=32)])
def test_each_row_is_an_iteration_of_its_way(setting):
    turn, *others = (sum(parts.values()) for parts in rollouts.rows(setting).values())
    two, late = rollouts.apart(setting), rollouts.behind(setting)
    assert turn == pytest.approx(rollouts.together(setting).seconds)
    assert others == pytest.approx([two.seconds] * 2 + [late.seconds] * 2)


def test_in_flight_ends_with_generation_and_begins_with_all():
    data, _ = rollouts.flight_state(Learned())
    for name, each in (("all", rollouts.together), ("pool", rollouts.apart)):
        assert data[name]["y"][0] == rollouts.samples(Learned()) and data[name]["y"][-1] == 0
        assert data[name]["x"][-1] == each(Learned()).generation.seconds


def test_pools_that_are_no_gain_and_a_step_that_does_not_fit_are_walls():
    view = rollouts.post_training.view
    assert "1.14 times as fast" in view(Learned()).fine and not view(Learned()).wall
    assert view(Learned(pool=2)).wall.startswith("Balance: generation takes")
    assert view(Learned(spread=0.0, samples=32)).wall.startswith("Balance: training takes")
    seconds = [rollouts.behind(Learned(pool=pool)).seconds for pool in rollouts.POOLS]
    assert rollouts.best(Learned())[1] == min(seconds)


# here -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_has_the_same_batch_and_can_be_predicted(name):
    for ranks in here.RANKS:
        run = here.experiment(Here(name, ranks))
        assert int(run.global_batch) == 32 and int(run.devices) == ranks
        assert here.times_as_fast(Here(name, ranks)) > 1


def test_a_run_is_reported_beside_one_rank():
    own, alone = Ran(150.0, 1.8 + 1e-14), Ran(300.0, 1.8)
    assert "0.5 times as fast" in here.came_out(own, alone) and "✓" in here.came_out(own, alone)
    assert "✕" in here.came_out(own._replace(loss=1.81), alone)
    terms = {"forward": 0.1, "exposed communication": 0.1}
    html = result_html(Here(), terms, {Here().alone: alone, Here(): own, Here(batch=64): own})
    assert html.count("calibrates") == 1 and html.count("in a ring") == 1


def test_an_error_of_a_run_takes_its_place():
    def fails(*_: Any) -> Any:
        raise SpecError("No ranks here.")

    page = layouts_here(fails, thread=Now)
    button(page, "Train").click()
    assert "No ranks here." in result_text(page) and not button(page, "Train").disabled


def test_checks_compute_with_the_formulas_of_the_page():
    asked, share, _ = questions.own_bubble(np.random.default_rng(1))
    work = asked["chunks"] * asked["microbatches"]
    assert share == pytest.approx(100 * (asked["stages"] - 1) / work)
    assert asked["microbatches"] % asked["stages"] == 0
    asked, share, _ = questions.own_mfu(np.random.default_rng(1))
    assert 25 < share < 55 and asked["rate"] * asked["weights"] * 6e15 / asked["gpus"] < 989e12
