"""compare(experiment): one step every way, on real ranks; its text, and what is refused."""

import json
from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import pytest

from lib_dlhpc.comparison import bands, compare
from lib_dlhpc.comparison.comparison import ALL, BESIDE, WAYS, beside, estimated, start_beside
from lib_dlhpc.comparison.placed import placed
from lib_dlhpc.comparison.short import FEWEST, MOST
from lib_dlhpc.comparison.steady import steps_of
from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch.local import JobError, start
from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.host import cores, host_class
from lib_dlhpc.spec.measured_machine import default_path
from lib_dlhpc.spec.units import format_quantity
from lib_dlhpc.timeline.store import save

SPLITS = {
    "data": {"strategy.data": 2},
    "pipeline": {"strategy.pipeline": 2, "strategy.microbatches": 4},
    "tensor": {"strategy.tensor": 2},
    "zero": {"strategy.zero": 2},
    "local": {"strategy.update": "local", "strategy.local_steps": 3},
}
PROBED = ("pipeline",)  # probes beside the run are the same whatever it is, and take longer


def _compared(experiment, steps=12, factor=1.0):
    """Return a comparison whose run is the simulated one, `factor` times as long."""
    expected = estimated(placed(experiment))
    timeline = simulate(expected.placed.experiment, steps=steps)
    slow = replace(timeline, start=factor * timeline.start, stop=factor * timeline.stop)
    return beside(expected, [steps_of(slow)])


@pytest.mark.parametrize("split", SPLITS)
def test_every_way_has_the_same_terms(ranks_can_start, digits, calibrated, quick_probes, split):
    two = digits.set({"strategy.devices_per_node": 2, **SPLITS[split]})
    begin = start_beside if split in PROBED else start
    found = compare(two, machine=calibrated, steps=12, begin=begin)
    assert (found.slowdown is not None) is (split in PROBED)
    assert tuple(found.step) == WAYS
    for way in WAYS:
        parts = sum(seconds.get(way, 0.0) for seconds in found.terms.values())
        assert parts == pytest.approx(found.step[way]), way
        assert found.step[way] > 0
    assert found.spread[0] <= found.step["measured"] <= found.spread[1]
    assert found.steps >= 2
    assert set(found.bands) == set(WAYS) - {"measured"}
    assert json.loads(json.dumps(found.as_dict()))["step"] == dict(found.step)
    text = found.as_text()
    assert all(way in text for way in WAYS)
    assert all(name in text for name in found.terms)


def test_the_run_folder_is_stored_where_requested_and_removed_otherwise(
    ranks_can_start, digits, tmp_path
):
    folders = []
    compare(digits, steps=4, look=lambda job: folders.append(job.folder))
    assert folders and not folders[0].exists()
    kept = compare(digits, steps=4, folder=tmp_path / "run")
    assert kept.folder == tmp_path / "run"
    assert (kept.folder / "timeline.npz").exists()
    with pytest.raises(SpecError, match="holds a run already"):
        compare(digits, steps=4, folder=tmp_path / "run")


def test_a_look_can_end_the_run(ranks_can_start, digits):
    jobs = []

    def look(job):
        jobs.append(job)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(digits, steps=200, look=look)
    assert jobs[0].state in ("cancelled", "done")
    assert not jobs[0].folder.exists()


def test_a_look_sees_a_queued_run(digits, tmp_path):
    class Queued:
        """A job of a batch system: it waits, it runs, it is done."""

        folder, left = tmp_path, ["queued", "queued", "running"]

        @property
        def state(self):
            return self.left[0] if self.left else "done"

        def wait(self):
            assert not self.left, "a blocked caller cannot poll"
            return {}

        def cancel(self):
            pass

    def look(job):
        seen.append(job.state)
        job.left.pop(0)

    seen = []
    save(simulate(digits, steps=9), tmp_path / "timeline.npz")
    compare(digits, steps=9, folder=tmp_path, look=look, begin=lambda *given: Queued())
    assert seen == ["queued", "queued", "running"]


def test_a_run_that_fails_reports_why(ranks_can_start, digits):
    with pytest.raises(JobError, match="not finite"):
        compare(digits.set({"training.rate": 1e30}), steps=20)


def test_what_cannot_be_trained_is_refused_before_a_rank_starts(digits):
    def begin(*given):
        raise AssertionError("started")

    with pytest.raises(SpecError, match="numpy has no such numbers"):
        compare(digits.set({"strategy.precision": "tf32"}), begin=begin)


def test_what_does_not_fit_is_refused_before_a_rank_starts(digits):
    def begin(*given):
        raise AssertionError("started")

    small = digits.set({"machine.device.memory": "90 MB", "machine.device.reserved_memory": 8e7})
    wide = small.set({"model.widths": [64, 4000, 4000, 10]})
    with pytest.raises(SpecError, match=r"machine\.device\.memory = 90 MB: a rank needs"):
        compare(wide, begin=begin)


def test_ranks_split_the_global_batch(digits):
    four = placed(digits.set({"strategy.batch": 64}), 4)
    assert int(four.experiment.devices) == 4 == four.ranks
    assert int(four.experiment.global_batch) == 64
    assert not [note for note in four.notes if "samples" in note]
    three = placed(digits, 3)
    assert int(three.experiment.strategy.batch) == 11
    assert "33 samples instead of 32: 11 on each of 3 ranks" in " ".join(three.notes)


def test_replicas_follow_the_ranks(digits):
    assert int(placed(digits.set({"strategy.data": 1}), 2).experiment.devices) == 2


def test_a_run_of_many_nodes_is_placed_on_this_one(digits):
    two = digits.set({"machine.nodes": 2, "strategy.nodes": 2, "strategy.devices_per_node": 2})
    here = placed(two).experiment
    assert (here.strategy.nodes, int(here.devices), here.global_batch) == (1, 4, two.global_batch)


def test_a_network_that_is_partitioned_has_its_own_number_of_ranks(digits):
    piped = digits.set({"strategy.devices_per_node": 2, "strategy.pipeline": 2})
    with pytest.raises(SpecError, match="partitioned over the 2 devices"):
        placed(piped, 3)
    with pytest.raises(SpecError, match="ranks = 0: expected at least 1"):
        placed(digits, 0)


def test_the_numbers_of_the_machine_are_those_that_were_measured(digits, calibrated):
    other = digits.set({"machine.name": "lassen", "strategy.devices_per_node": 1})
    for experiment in (digits, other):
        here = placed(experiment, machine=calibrated)
        assert here.experiment.machine.device == calibrated.device
        assert here.notes == ()


def test_when_and_where_they_were_measured_is_reported(digits, calibrated):
    known = beside(
        estimated(placed(digits, machine=calibrated)), [steps_of(simulate(digits, steps=9))]
    )
    where = f"calibrated on {date.today().isoformat()} with 2 ranks: {host_class()}"
    assert where in known.as_text()
    assert known.as_dict()["calibration"] == where
    assert _compared(digits).as_dict()["calibration"] is None


def test_without_a_calibration_the_stand_in_is_reported(digits):
    message = " ".join(placed(digits).notes)
    assert "this machine is not calibrated" in message and "dlhpc calibrate" in message


def test_that_hits_come_later_than_the_steps_of_a_short_run_is_reported(digits):
    tier = {"storage.tier": "ssd"}
    assert "hits" in " ".join(placed(digits.set({**tier, "storage.cache": 1e3})).notes)
    assert "hits" not in " ".join(placed(digits.set(tier)).notes)


def test_a_foreign_or_stale_calibration_is_reported(digits, calibrated):
    old = (date.today() - timedelta(days=90)).isoformat()
    where = replace(calibrated.measured, host="another", date=old)
    message = " ".join(placed(digits, machine=replace(calibrated, measured=where)).notes)
    assert "another machine: another" in message
    assert "90 days ago" in message


def test_the_users_own_calibration_is_taken_up(digits, calibrated):
    default_path().parent.mkdir(parents=True)
    default_path().write_text("[machine]\nname = 'laptop'\n")
    with pytest.raises(SpecError, match="measured"):
        placed(digits)
    assert placed(digits, machine=calibrated).notes == ()


def test_more_ranks_than_cores_are_flagged_at_the_top_and_not_judged(digits):
    many = digits.set({"machine.devices_per_node": 999, "strategy.devices_per_node": cores() + 1})
    found = _compared(many)
    assert found.oversubscribed
    assert found.as_text().startswith("OVERSUBSCRIBED")
    assert found.verdict[0].startswith("No verdict") and "share" in found.no_verdict
    assert found.inside() is None
    assert len(found.verdict) == 1
    assert not _compared(digits).oversubscribed


def test_where_ranks_share_cores_few_steps_do(digits):
    many = digits.set({"machine.devices_per_node": 999, "strategy.devices_per_node": cores() + 1})
    assert estimated(placed(many)).steps_in(1e6) == FEWEST
    assert estimated(placed(digits)).steps_in(1e6) == MOST


def test_a_run_as_predicted_has_no_term_that_is_off(digits):
    found = _compared(digits.set({"machine.jitter": 0.0}))
    assert abs(found.error("predicted")) < 1e-9
    assert "No term is off by more than" in found.verdict[-1]


@pytest.mark.parametrize("seconds", [5.68e-16, 5.68e-12, 1e-3, 3e7, 4.07e24])
def test_columns_stand_apart_whatever_is_in_them(digits, seconds):
    found = _compared(digits)
    ways = dict.fromkeys(WAYS, seconds)
    odd = replace(found, terms={"forward": ways, "other": ways}, step=ways)
    lines = odd.as_text().splitlines()
    (head,) = (line for line in lines if line.split()[:1] == ["predicted"] and "|" not in line)
    rows = [line for line in lines if line.startswith(("one step", "  forward", "  other"))]
    shown = format_quantity(seconds, "s")
    assert len(rows) == 3
    for row in rows:
        assert row.count(f" {shown}") == len(WAYS)
        assert row.count(" +0.0%") == len(WAYS) - 1
        assert len(row) == len(head)


def test_the_term_that_is_off_most_is_named_with_its_factor_and_a_reason(digits):
    found = _compared(digits.set({"machine.jitter": 0.0}), factor=3.0)
    assert found.error("predicted") == pytest.approx(1 / 3 - 1)
    expected, advice = found.verdict[1:]
    assert expected.startswith("Largest error: backward")
    assert "3.0 times" in expected and "rate" in expected
    assert "dlhpc calibrate" in advice


def test_steps_that_differ_much_get_no_verdict_where_core_waits_are_not_known(digits):
    """Where they are known, steps are compared without them, and what is left is the run's own."""
    for jitter, restless in ((0.0, False), (0.9, True)):
        expected = estimated(placed(digits))
        steps = steps_of(simulate(digits.set({"machine.jitter": jitter}), steps=60))
        found = beside(expected, [steps])
        assert ("other processes are using this machine" in found.no_verdict) is restless
        assert found.as_dict()["judged"] is not restless
        known = replace(steps, core_wait=np.zeros((1, len(steps.seconds))))
        assert not beside(expected, [known]).no_verdict


def test_whether_the_measured_step_is_in_the_band_is_reported(digits, calibrated):
    here = replace(digits, machine=calibrated)
    expected = estimated(placed(here, machine=calibrated))
    for factor, inside in ((1.0, True), (50.0, False)):
        timeline = simulate(expected.placed.experiment, steps=8)
        slow = replace(timeline, start=factor * timeline.start, stop=factor * timeline.stop)
        found = beside(expected, [steps_of(slow)])
        assert found.inside() is inside
        assert ("outside" in found.verdict[0]) is not inside


def test_predictions_and_simulations_are_for_the_slowdown_factors_of_the_moment(digits, calibrated):
    expected = estimated(placed(digits, machine=calibrated))
    steps = steps_of(simulate(expected.placed.experiment, steps=8))
    plain = beside(expected, [steps])
    assert plain.slowdown is None and not any("Right before" in words for words in plain.verdict)
    factors = (((1.5, 1.5), (1.6, 1.5)), ((1.5 * 1.5 / 1.6, 1.5), (1.5, 1.5)), ())
    runs = [replace(steps, slowdowns=each) for each in factors]
    found = beside(expected, runs)
    assert found.slowdown == pytest.approx((1.5, 1.5))
    assert found.as_dict()["pace"] == pytest.approx({"work": 1.5, "calls": 1.5})
    assert any("compute was 1.50 times" in words for words in found.verdict)
    for way in ("predicted", "rounds", "events"):
        for name in ("forward", "backward", "update"):
            slower = 1.5 * plain.terms[name][way]
            assert found.terms[name][way] == pytest.approx(slower, rel=0.05), (way, name)
        low, high = found.bands[way][ALL]
        assert low <= found.step[way] <= high
    assert found.step["measured"] == pytest.approx(plain.step["measured"])


def test_ranks_measure_the_slowdown_on_a_calibrated_machine(ranks_can_start, digits, calibrated):
    found = compare(digits, machine=calibrated, steps=8)
    assert min(found.slowdown) > 0
    assert compare(digits, steps=8).slowdown is None


def test_ranks_that_share_cores_measure_no_slowdown(digits, calibrated, monkeypatch):
    given = []
    monkeypatch.setattr(
        "lib_dlhpc.comparison.comparison.start", lambda *words, **more: given.append(more["beside"])
    )
    here = placed(digits, machine=calibrated).experiment
    for experiment, ranks in ((here, cores()), (here, cores() + 1), (digits, 1)):
        start_beside(experiment, ranks)
    assert given == [BESIDE, 0.0, 0.0]


def test_a_simulation_has_the_predictions_band_about_itself(digits, calibrated):
    expected = estimated(placed(digits, machine=calibrated))
    predicted, rounds = expected.bands["predicted"][ALL], expected.bands["rounds"][ALL]
    assert predicted == pytest.approx(bands(expected.placed.experiment)[ALL])
    scale = expected.step["rounds"] / expected.step["predicted"]
    assert rounds == pytest.approx([edge * scale for edge in predicted])
    assert expected.step["predicted"] == pytest.approx(
        float(predict(expected.placed.experiment).step_time)
    )


def test_a_fidelity_that_cannot_be_simulated_is_left_out_with_a_note(digits, monkeypatch):
    def refuse(experiment, fidelity, **others):
        if fidelity == "events":
            raise SpecError("too large")
        return simulate(experiment, fidelity, **others)

    monkeypatch.setattr("lib_dlhpc.comparison.comparison.simulate", refuse)
    expected = estimated(placed(digits))
    assert "events" not in expected.terms
    assert "fidelity events is left out: too large" in expected.notes
    text = beside(expected, [steps_of(simulate(digits, steps=9))]).as_text()
    assert "events |" not in text


def test_offloaded_updates_are_reported_within_the_backward_pass(digits, calibrated):
    expected = estimated(placed(digits.set({"strategy.offload": "all"}), machine=calibrated))
    alone = predict(expected.placed.experiment)
    both = expected.terms["predicted"]["backward"]
    assert both == pytest.approx(alone.backward + alone.update) and both > alone.backward
    assert expected.step["predicted"] == pytest.approx(alone.step_time)
    for way in ("predicted", "rounds", "events"):
        assert expected.terms[way]["update"] == 0 and expected.bands[way]["update"] == (0, 0)
        low, high = expected.bands[way]["backward"]
        assert low <= expected.terms[way]["backward"] <= high


def test_a_stall_on_storage_is_a_term_of_each_way(digits, calibrated):
    slow = {"machine.storage.slow": {"scope": "node", "bandwidth": 1e4}, "storage.tier": "slow"}
    run = digits.set(slow)
    stall = float(predict(placed(run, machine=calibrated).experiment).input_stall)
    expected = estimated(placed(run, machine=calibrated))
    found = beside(expected, [steps_of(simulate(expected.placed.experiment, steps=8))])
    assert set(found.terms["input stall"]) == set(WAYS)
    for seconds in found.terms["input stall"].values():
        assert seconds == pytest.approx(stall, rel=0.1)
    assert "not measured" not in found.as_text()
