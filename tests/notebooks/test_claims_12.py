"""What module 12 and its notes say is what the library computes."""

import pytest
from module_text import has_every_part

from lib_dlhpc.explore.language_model import experts, layout, sequences
from lib_dlhpc.explore.language_model.bubbles import ALL, SCHEDULES, TWO, bubble, fullest
from lib_dlhpc.explore.language_model.bubbles import Setting as Pipe
from lib_dlhpc.explore.language_model.charts import causes
from lib_dlhpc.explore.language_model.experts import Setting as Mixture
from lib_dlhpc.explore.language_model.layout import Setting as Layout
from lib_dlhpc.explore.language_model.layout import mfu, predicted
from lib_dlhpc.explore.language_model.questions import FAR, PUBLISHED, computed, saved_fp8
from lib_dlhpc.explore.language_model.sequences import Setting as Long
from lib_dlhpc.prediction.validate import validate


def exposed(setting):
    """Return the share of a step that waits for keys and values."""
    return sequences.predicted(setting).exposed


def test_the_published_rates_are_predicted_within_5_percent():
    rows = {row.id: row for row in validate(["llama3"], PUBLISHED)}
    assert set(rows) == set(PUBLISHED)
    assert all(abs(row.error) < 0.05 for row in rows.values())


def test_one_gpu_would_take_three_thousand_years_and_hold_a_tenth():
    own = predicted(Layout())
    assert 3000 < float(own.device_hours) / 24 / 365 < 3500
    weights = 2 * float(own.experiment.model.parameters)
    assert 8 < weights / float(own.experiment.machine.device.memory) < 12


def test_llama_3s_layout_fits_in_the_published_band_and_fsdp_alone_is_five_times_slower():
    own, alone = predicted(Layout()), predicted(layout.ALONE)
    assert own.fits and layout.BAND[0] < mfu(own) < layout.BAND[1]
    assert float(own.step_time) == pytest.approx(layout.published_step(), rel=0.02)
    assert alone.fits and float(alone.step_time) > 5 * float(own.step_time)
    assert causes(alone)["gradients, weights"] > 0.8 * float(alone.step_time)


def test_eight_stages_are_faster_and_fit_only_with_sharded_gradients():
    eight, sharded = (predicted(Layout(pipeline=8, zero=zero)) for zero in (1, 2))
    assert eight.step_time < predicted(Layout()).step_time and not eight.fits and sharded.fits


def test_context_ranks_halve_memory_of_activations_and_the_bubble():
    own, two = predicted(Layout()), predicted(Layout(context=2))
    assert two.memory["activations"] < 0.6 * own.memory["activations"]
    assert two.pipeline_bubble < 0.6 * own.pipeline_bubble and mfu(two) > mfu(own)


def test_no_schedule_is_without_a_bubble():
    one, two, most, apart = (
        bubble(Pipe(schedule=s)) for s in (SCHEDULES[0], TWO, ALL, SCHEDULES[-1])
    )
    assert 0.05 < most < two < one and 0.25 < apart < 0.4
    full = fullest(Pipe(schedule=SCHEDULES[-1], recompute="full"))[1]
    assert full > 0.9 * fullest(Pipe(schedule=SCHEDULES[-1]))[1]


def test_a_ring_is_hidden_once_a_rank_has_some_thousand_tokens():
    assert exposed(FAR) > 0.5
    assert (
        exposed(FAR._replace(sequence=2**16)) > 0.2 > 0.02 > exposed(FAR._replace(sequence=2**17))
    )
    assert exposed(Long(exchange="heads")) > 5 * exposed(Long())


def test_half_of_a_step_is_the_experts_all_to_all_and_the_arithmetic_is_less_than_published():
    own = experts.predicted(Mixture())
    assert 0.4 < experts.share(Mixture()) < 0.6
    assert 0.8 * experts.published_step() < computed() < experts.published_step()
    assert float(own.step_time) > 2 * experts.published_step()
    assert experts.predicted(Mixture(experts=8, pipeline=32)).fits
    assert saved_fp8() == "19%"


def test_every_part_is_there(repository):
    has_every_part(repository / "modules" / "12_train_a_language_model.ipynb", 5, 4)
