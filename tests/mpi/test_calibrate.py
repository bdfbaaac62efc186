"""`dlhpc calibrate` on real ranks: what it writes is a machine that predicts, whatever else goes on here."""

import json

import pytest

from lib_dlhpc.calibration.machine import fit_machine, measure_machine
from lib_dlhpc.calibration.programs import PROBE, STEPS, WORKER
from lib_dlhpc.launch.mpi import run_to_end
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import load
from lib_dlhpc.spec.measured_machine import foreign, measured_on


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_real_ranks_give_a_machine_that_predicts(ranks, repository):
    def run(ranks, *arguments, patience):
        return run_to_end(ranks, *arguments, patience=180.0)

    raw = measure_machine(ranks, 2.0, run)
    assert raw[PROBE]["ranks"] == raw[WORKER]["ranks"] == ranks
    found = fit_machine(raw)
    assert foreign(found.machine) == []
    for key, (low, high) in found.machine.measured.intervals.items():
        assert 0 <= low <= high < float("inf"), key
    experiment = load(repository / "labs" / "experiments" / "digits.toml")
    table = {"strategy.devices_per_node": ranks, "strategy.batch": 16}
    own = experiment.set(table)
    laid = type(own)(**{**vars(own), "machine": measured_on(own.machine, found.machine)})
    assert 0 < float(predict(laid).step_time) < 60
    kinds = {layer.kind for layer in own.model.layers}
    assert kinds <= set(found.machine.device.layers)


@pytest.mark.slow
def test_whole_steps_of_a_real_run_are_held_against_their_parts(tmp_path):
    file = tmp_path / "steps.json"
    done = run_to_end(1, "-m", STEPS, str(file), "0", patience=180.0)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text(encoding="utf-8"))
    assert found["ranks"] == 1 and [run["tiny"] for run in found["runs"]] == [False] * 6 + [True]
    for run in found["runs"]:
        assert len(run["busy"]) == len(run["wait"]) == len(run["behind"]) > 0
        assert min(run["busy"]) > 0 and min(run["wait"]) >= min(run["behind"]) >= 0
