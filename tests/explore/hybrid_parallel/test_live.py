"""Networks split over real ranks from the page: equal to one rank, terms three ways; failures are shown."""

import re
from typing import Any

import pytest
from experiment_page import Now, click, controls, result_text

from lib_dlhpc.explore.blocks.live_run import one_step, with_rate
from lib_dlhpc.explore.hybrid_parallel import live
from lib_dlhpc.explore.hybrid_parallel.live import (
    CAUSES,
    Ran,
    asked_view,
    equal_html,
    idle_by_cause,
    split_here,
)
from lib_dlhpc.explore.hybrid_parallel.runs import MOST, NETWORKS, Setting, experiment, problem_of
from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate

NAMES = {
    "network": "Network",
    "inside": "Ranks per layer",
    "stages": "Stages",
    "replicas": "Replicas",
    "microbatches": "Microbatches",
}
ALL_THREE = {"network": "words", "inside": 2, "stages": 2, "replicas": 2, "microbatches": 4}
RAN = Ran(100.0, 1.5, 1.25, {"forward": 1.0})


def choose(panel: Any, **changes: Any) -> None:
    for name, value in changes.items():
        controls(panel)[NAMES[name]].value = value


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("split", [(1, 1, 1), (2, 1, 1), (4, 1, 2), (2, 2, 2)])
def test_the_batch_is_the_same_in_every_layout(network, split):
    there = experiment(Setting(network, *split))
    assert there.global_batch == NETWORKS[network].batch
    assert there.devices == split[0] * split[1] * split[2]


@pytest.mark.parametrize(
    "changes", [{"inside": 2}, ALL_THREE], ids=["two slabs", "three ways at once"]
)
def test_a_split_network_equals_one_rank_beside_its_prediction(changes):
    pytest.importorskip("mpi4py")
    panel = split_here(thread=Now)
    choose(panel, **changes)
    click(panel, "Train")
    text = result_text(panel)
    assert "✓ <b>Test loss" in text
    off = float(re.findall(r"losses is (\d\.\de[-+]\d+)", text)[0])
    assert off < 1e-12
    for words in (
        "predicted",
        "simulated",
        "measured",
        "predicted less measured",
        *CAUSES,
        "Error.",
    ):
        assert words in text


def test_more_ranks_than_cores_is_said_before_the_run():
    setting = Setting(**ALL_THREE)
    assert asked_view(setting, 2).notice.startswith("Oversubscribed: 8 ranks on 2 cores")
    assert asked_view(setting, 8).fine and not asked_view(setting, 8).notice
    assert "share 2 cores" in live.why(setting, 2, 1e-3) and "4 ms" in live.why(setting, 2, 1e-3)
    assert "share" not in live.why(setting, 8, 1e-3)


def test_too_many_ranks_are_refused_before_anything_starts():
    panel = split_here(lambda *_: pytest.fail("it was started"), thread=Now)
    choose(panel, inside=4, stages=2, replicas=2)
    assert f"16 ranks: {MOST} at most" in result_text(panel)
    assert not click(panel, "Train").disabled
    assert problem_of(Setting("cubes", 4, 2, 2)) and not problem_of(Setting(**ALL_THREE))


def test_another_loss_is_no_equality():
    setting = Setting(inside=2)
    assert "✓" in equal_html(setting, RAN, RAN._replace(test_loss=1.25 * (1 + 1e-15)))
    assert "✕" in equal_html(setting, RAN, RAN._replace(loss=1.5 * (1 + 1e-6)))


@pytest.mark.parametrize("changes", [{"inside": 4}, ALL_THREE])
def test_the_idle_time_by_cause_is_all_the_waiting_of_a_simulated_rank(changes):
    there = with_rate(experiment(Setting(**changes)), RAN.rate).set({"machine.jitter": 0.0})
    simulated = simulate(there)
    waits = simulated.select(simulated.where("compute", "wait"))
    whole = float((waits.stop - waits.start).sum()) / simulated.ranks
    assert sum(idle_by_cause(simulated, 1).values()) == pytest.approx(whole)
    layers = sum(float(predict(there).exposed.get(kind, 0.0)) for kind in ("halo", "tensor"))
    assert idle_by_cause(simulated, 1)[next(iter(CAUSES))] == pytest.approx(layers, rel=0.5)


def test_one_step_is_from_update_to_update():
    whole = simulate(experiment(Setting("words", 2, 2, 1, 4)), steps=4)
    parts = [one_step(whole, number) for number in range(4)]
    for step in parts:
        assert step.where("compute", "update").sum() == whole.ranks and step.start.min() == 0
    # What begins after the last update, such as a message that is still to arrive, is in none of them.
    assert 0.9 * len(whole) <= sum(map(len, parts)) <= len(whole)
