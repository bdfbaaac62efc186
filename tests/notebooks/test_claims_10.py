"""What module 10 and its notes say is what the library computes."""

import numpy as np
import pytest
from published_rows import scored_of, shown_in

from lib_dlhpc.convergence import LAWS
from lib_dlhpc.explore.energy_planning import here, swings
from lib_dlhpc.explore.energy_planning.best_size import Setting as Size
from lib_dlhpc.explore.energy_planning.best_size import best, found_sizes, with_guess
from lib_dlhpc.explore.energy_planning.budget import Setting as Budget
from lib_dlhpc.explore.energy_planning.budget import gpus, layout, planned
from lib_dlhpc.explore.energy_planning.here import Setting as Here
from lib_dlhpc.explore.energy_planning.pipeline_slack import Setting as Pipe
from lib_dlhpc.explore.energy_planning.pipeline_slack import found
from lib_dlhpc.explore.energy_planning.planned_sizes import SLOW
from lib_dlhpc.explore.energy_planning.questions import (
    FAST,
    best_limit,
    gpt3_reason,
    lesson,
    mfu_mpt,
)
from lib_dlhpc.explore.energy_planning.to_accuracy import Setting as Run
from lib_dlhpc.explore.energy_planning.to_accuracy import by_cause, cost, runs
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.energy.slack import BEST_CLOCK
from lib_dlhpc.prediction.validation.validate import validate


def test_the_published_figures_are_predicted_within_1_percent():
    assert all(abs(row.error) < 0.01 for row in shown_in(lesson).values())


def test_the_fastest_is_not_the_cheapest_and_the_cheapest_saves_little_more_than_the_knee():
    fastest, knee, cheapest = (cost(each) for each in runs(0.76).named.values())
    assert fastest.joules > 2 * cheapest.joules and cheapest.seconds > 20 * fastest.seconds
    most, few = runs(0.76).named["fastest"], runs(0.76).named["knee"]
    assert (most.gpus // few.gpus, most.batch // most.gpus) == (4, 4)
    assert knee.joules < 1.2 * cheapest.joules and knee.seconds < 3 * fastest.seconds


def test_a_run_of_8192_takes_nearly_the_same_joules_on_64_gpus_as_on_256():
    few, many = (cost(Run(gpus=each)) for each in (64, 256))
    assert 1 < many.joules / few.joules < 1.1
    assert many.seconds < 0.3 * few.seconds


def test_the_last_doubling_of_the_gpus_costs_most_of_the_joules_in_waiting_and_hosts():
    most, half = by_cause(Run(gpus=2048)), by_cause(Run(gpus=1024))
    added = {cause: most[cause] - half[cause] for cause in most}
    assert added["hosts, switches"] + added["waiting, exchanging"] > 0.5 * sum(added.values())
    assert cost(Run(gpus=1024)).seconds < 1.05 * cost(Run(gpus=2048)).seconds


def test_a_limit_saves_joules_down_to_a_point():
    joules = {limit: cost(Run(limit=limit)).joules for limit in (0, 175, 125)}
    assert best_limit() == "175 W"
    assert joules[175] < joules[0] < joules[125]


def test_on_the_slow_network_half_of_the_gpus_are_the_fastest_and_the_layout_changes():
    plan = planned(Budget().network)
    assert gpus(plan.best) == 32 and "pipeline 8" in layout(plan.best)
    assert "pipeline" not in layout(plan.knee)
    assert [gpus(choice) for choice in planned(FAST).front] == sorted(
        (gpus(choice) for choice in planned(FAST).front), reverse=True
    )
    assert gpus(planned(FAST).best) == 64


def test_of_gpt_3_accuracy_is_not_assessed():
    assert "accuracy not assessed" in gpt3_reason() and "batch must stay" in gpt3_reason()


def billions(weights):
    return round(weights / 1e9, 2)


def test_the_best_size_is_7_billion_within_what_was_measured():
    own = found_sizes(Size())
    assert not own.beyond(own.best)
    assert billions(best(Size()).weights) == 6.74
    assert own.tokens[own.best] == pytest.approx(213e9, rel=0.01)
    assert own.loss[own.best] == pytest.approx(2.151, abs=5e-4)
    low, high = own.near()
    assert (billions(low.weights), billions(high.weights)) == (6.74, 13.02)
    small = next(row for row, each in enumerate(own.family) if billions(each.weights) == 1.75)
    assert own.tokens[-1] == pytest.approx(7.2e9, rel=0.02) and own.loss[-1] > own.loss[small]


def test_rates_start_from_one_measured_rate_and_others_of_that_software_are_met():
    rows = [row for name in ("dgxc", "nemo-h100") for row in scored_of(name) if "bf16" in row.id]
    dense = [row for row in rows if row.group == "NeMo"]
    assert len(dense) == 33 and max(abs(row.error) for row in dense) < 0.07
    counts = sorted(int(row.experiment.devices) for row in dense)
    assert (counts[0], counts[-1]) == (16, 2304)
    old = validate(["megatron"], only=["megatron21-zero3-174-768", "megatron21-zero3-529-2240"])
    errors = []
    for row in old:
        run, priced = row.experiment, float(predict(row.experiment).step_time)
        keep = {
            "machine.device.dispatch": run.machine.device.dispatch,
            "calibration.compute_scale": run.calibration.compute_scale,
        }
        free = predict(run.set({"machine.device.list_copy": 0.0, **keep}))
        errors.append((1 + row.error) * priced / float(free.step_time) - 1)
    assert [round(100 * each) for each in errors] == [62, 106]


def test_other_software_has_other_rates():
    (mpt,) = validate(["mpt"], only=["mpt-h100-13b-2048-32"])
    (own,) = (each for each in found_sizes(Size()).family if billions(each.weights) == 13.02)
    assert (mpt.published, round(own.rate / 64)) == (4811, 6861)
    assert round(100 * (own.rate / 64 / mpt.published - 1)) == 43
    assert round(100 * mfu_mpt()) == 40


def test_a_guess_chooses_the_same_size_and_promises_less():
    guess = with_guess(Size())
    assert guess.family[guess.best].weights == best(Size()).weights
    assert guess.loss.min() == pytest.approx(2.175, abs=5e-4)
    assert guess.loss.min() > found_sizes(Size()).loss.min() + 0.02
    family = found_sizes(Size()).family
    own = [round(100 * each.utilization) for each in (family[0], best(Size()), family[-1])]
    assert own == [50, 60, 49]


def test_served_tokens_over_train_and_a_slow_network_moves_the_size():
    served = found_sizes(Size(served=1e12))
    assert billions(served.family[served.best].weights) == 1.75
    per_weight = served.tokens[served.best] / served.family[served.best].weights
    assert round(per_weight) == 236
    fast, slow = best(Size(gpus=512)), best(Size(SLOW, 512))
    assert [billions(each.weights) for each in (fast, slow)] == [22.14, 22.14]
    assert [round(100 * each.utilization) for each in (fast, slow)] == [59, 18]
    used = [each.utilization for each in found_sizes(Size(SLOW, 512)).family]
    assert [round(100 * used[0]), round(100 * used[-1])] == [7, 24]
    mfu = [each.utilization for each in found_sizes(Size()).family]
    assert [round(100 * each) for each in (mfu[0], min(mfu), max(mfu))] == [50, 49, 62]


def test_6n_leaves_out_5_to_23_percent():
    extra = [round(100 * each.uncounted) for each in found_sizes(Size()).family]
    assert (min(extra), max(extra)) == (5, 23)


def test_both_laws_of_the_budget_of_chinchilla_and_the_rule_of_three():
    sizes = [law.split(5.76e23).weights for law in LAWS.values()]
    assert [round(each / 1e9) for each in sizes] == [32, 72]
    for law in LAWS.values():
        few, many = law.split(1e21), law.split(1e22)
        assert 2.5 < many.weights / few.weights < 3.5 and 2.5 < many.tokens / few.tokens < 4
    # In the runs of Chinchilla: the refit, for budgets of the size of its own.
    own = LAWS["besiroglu"].split(5.76e23)
    assert 15 < own.tokens / own.weights < 25


def test_the_last_stage_has_no_slack_for_it_is_the_slowest():
    own = found(Pipe())
    place = np.array([call.place for call in own.passes])
    busy = [own.seconds[place == stage].sum() for stage in range(8)]
    assert int(np.argmax(busy)) == 7
    assert own.stretched[place == 7] == pytest.approx(own.seconds[place == 7], rel=0.02)
    assert pytest.approx(0.61, abs=0.005) == BEST_CLOCK


def test_the_saving_shrinks_with_the_bubble():
    saved = [found(Pipe(**each)).saving for each in ({}, {"microbatches": 32}, {"stages": 2})]
    assert saved == sorted(saved, reverse=True)
    assert found(Pipe(schedule="gpipe")).saving < 0.5 * saved[0]


def test_more_epochs_outweigh_the_more_efficient_products():
    assert 1 < here.times_as_long(Here()) < here.more_epochs(Here())


def test_power_swings_are_as_the_notes_say():
    plain = swings.found(swings.Setting()).plain
    assert plain.watts.max() == pytest.approx(18.5e6, abs=5e4)
    assert plain.watts.min() == pytest.approx(10.9e6, rel=5e-3)
    assert plain.swing == pytest.approx(7.6e6, abs=5e4)
    assert plain.period == pytest.approx(1.28, abs=0.005)
    floor = swings.found(swings.Setting(floor=0.95))
    year = floor.more * floor.several.mean * swings.YEAR / swings.GWH
    assert [floor.more, year] == pytest.approx([0.116, 16.7], rel=0.03)
    battery = swings.found(swings.Setting(battery=0.9))
    assert battery.more == pytest.approx(0.0095, abs=5e-4)
    assert battery.held / 3.6e6 == pytest.approx(0.49, abs=0.01)
    stall = swings.found(swings.Setting(event=swings.CHECKPOINT, battery=0.9))
    assert stall.held / 3.6e6 == pytest.approx(128, abs=2)
