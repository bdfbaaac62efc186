"""A run from a page: errors are shown, it can be cancelled, and the next one can be started in any case."""

import threading
from pathlib import Path
from typing import Any

import pytest
from experiment_page import Now, button, click, result_text
from patience import PATIENCE, eventually

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.live_run import with_rate
from lib_dlhpc.explore.data_parallel import live as data_parallel_live
from lib_dlhpc.explore.hybrid_parallel import live as hybrid_parallel_live
from lib_dlhpc.explore.model_parallel import live as model_parallel_live
from lib_dlhpc.launch.local import JobError
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import Experiment

PANELS = {
    "data": data_parallel_live.train_here,
    "model": model_parallel_live.split_here,
    "hybrid": hybrid_parallel_live.split_here,
}
panels = pytest.mark.parametrize("panel_of", PANELS.values(), ids=PANELS)


class Fails:
    """A run that ends at once, by itself or because it is cancelled."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.state = folder, "running"

    def cancel(self) -> None:
        self.state = "cancelled"

    def wait(self) -> dict[str, Any]:
        raise JobError("rank 2: ValueError: a bad day (step 3)")


@panels
@pytest.mark.parametrize("reason", ["a rank fails", "no MPI"])
def test_a_run_that_fails_is_told_and_can_be_tried_again(panel_of, reason, tmp_path):
    def begin(_: Any, ranks: int) -> Any:
        if reason == "no MPI":
            raise SpecError("There is no mpiexec here.")
        job = Fails(tmp_path / "run")
        job.state = "failed"
        return job

    panel = panel_of(begin, thread=Now)
    assert not click(panel, "Train").disabled and button(panel, "Cancel").disabled
    assert ("no mpiexec" if reason == "no MPI" else "rank 2: ValueError") in result_text(panel)
    assert not (tmp_path / "run").exists()


@panels
@pytest.mark.parametrize("now", ["queued", "running"])
def test_a_run_can_be_cancelled(panel_of, now, tmp_path):
    ended, running = threading.Event(), threading.Event()

    def begin(_: Any, ranks: int) -> Any:
        job = Fails(tmp_path / "run")
        job.state = now
        running.set()
        return job

    class Ends(threading.Thread):
        def run(self) -> None:
            super().run()
            ended.set()

    panel = panel_of(begin, thread=Ends)
    train = click(panel, "Train")
    assert train.disabled and running.wait(PATIENCE)
    eventually(lambda: ("Queued" if now == "queued" else "at work") in result_text(panel))
    click(panel, "Cancel")
    assert ended.wait(PATIENCE)
    assert "Cancelled." in result_text(panel) and not train.disabled
    assert not (tmp_path / "run").exists()


def test_a_prediction_with_the_rate_of_one_rank_foretells_that_rate():
    alone = Experiment(
        model="cnn-digits",
        dataset="digits",
        machine="laptop",
        strategy={"nodes": 1, "devices_per_node": 1, "batch": 240},
    )
    assert float(predict(with_rate(alone, 5e4)).throughput) == pytest.approx(5e4)
