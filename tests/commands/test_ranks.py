"""How many ranks a command asks for: those named, those that a resumed run had, or one for each device."""

import json

import pytest

from lib_dlhpc.commands.experiment import ranks_of
from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch import start
from lib_dlhpc.launch.folder import ranks_held
from lib_dlhpc.spec.experiment import Experiment, dump

RUN = Experiment(
    model="mlp-digits",
    dataset="digits",
    machine="laptop",
    strategy={"devices_per_node": 2, "batch": 50},
    run={"epochs": 1},
)
SPLIT = {"strategy.devices_per_node": 4, "strategy.pipeline": 4, "strategy.microbatches": 2}


@pytest.fixture
def run(tmp_path):
    """A function that makes the folder of a run: its experiment, and the file with its number of ranks."""

    def make(experiment, text, ranks):
        dump(experiment, tmp_path / "experiment.toml")
        if text:
            (tmp_path / text).write_text(json.dumps({"state": "done", "ranks": ranks}))
        return str(tmp_path)

    return make


@pytest.mark.parametrize("text", ["job.json", "status.json", "result.json"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_a_resumed_run_has_the_ranks_it_had(run, text, ranks):
    folder = run(RUN, text, ranks)
    assert ranks_of(RUN, None, folder) == ranks
    assert ranks_of(RUN.set({"run.epochs": 9}), None, folder) == ranks
    assert ranks_of(RUN, 4, folder) == 4  # whoever names a number has the last word
    # So has an experiment of another number of devices.
    assert ranks_of(RUN.set({"strategy.devices_per_node": 4}), None, folder) == 4
    assert ranks_of(RUN.set(SPLIT), None, folder) == 4


def test_without_a_run_that_reports_it_there_is_a_rank_for_each_device(run, tmp_path):
    assert ranks_of(RUN, None) == 2
    assert ranks_of(RUN, None, run(RUN, "", 0)) == 2
    assert ranks_of(RUN, None, str(tmp_path / "nowhere")) == 2
    with pytest.raises(SpecError, match="--ranks 0: expected"):
        ranks_of(RUN, 0)


def test_a_run_here_reports_on_how_many_ranks_it_is_from_its_start(tmp_path):
    job = start(RUN, 1, tmp_path / "run")
    assert ranks_held(job.folder) == 1
    job.cancel()
    assert ranks_held(job.folder) == 1 == ranks_of(RUN, None, str(job.folder))
