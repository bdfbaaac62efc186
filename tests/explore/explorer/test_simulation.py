"""The section "Simulate this step": closed it does nothing; open it shows the present run, or says that it does not."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from patience import PATIENCE

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.explorer import simulation as section
from lib_dlhpc.explore.explorer.choice import Choice
from lib_dlhpc.explore.explorer.limits import (
    MOST_MESSAGES,
    MOST_RANKS,
    MOST_ROWS,
    messages,
    quick,
    too_much,
)
from lib_dlhpc.explore.explorer.moves import moved
from lib_dlhpc.explore.explorer.page import Explorer
from lib_dlhpc.explore.explorer.presets import preset
from lib_dlhpc.explore.explorer.section import Soon
from lib_dlhpc.explore.explorer.simulated import (
    first_steps,
    gantt_of,
    simulate_step,
    simulated_html,
)
from lib_dlhpc.explore.explorer.simulation import STALE
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.validation.replays import replay, replays
from lib_dlhpc.simulation import simulate
from lib_dlhpc.simulation.watchdog import Cancelled
from lib_dlhpc.timeline import breakdown, columns, join

GOYAL = replay("goyal-2017").experiment


@pytest.fixture
def page(monkeypatch):
    monkeypatch.setattr(section, "PATIENCE", PATIENCE)  # other tests may have all cores
    page = Explorer()
    page.move("strategy.nodes", 4)
    page.simulation.opened.value = True
    return page


def stale(page):
    return STALE in page.simulation._result._dom_classes


def shown(page):
    return page.simulation.table.value, page.simulation.figure.data, page.simulation.said.value


def test_nothing_is_simulated_before_the_section_is_opened(monkeypatch):
    def never(*_, **__):
        raise AssertionError("simulated")

    monkeypatch.setattr(section, "simulate_step", never)
    page = Explorer()
    page.move("strategy.nodes", 4)
    page.simulation.controls["steps"].value = 2
    page.simulation.again.click()
    assert page.simulation.body.children == () and page.simulation.table.value == ""


def test_opened_it_shows_prediction_and_simulation_of_the_present_run(page):
    html = page.simulation.table.value
    predicted = predict(page.experiment)
    simulated = breakdown(simulate(page.experiment))
    for seconds in (predicted.step_time, simulated.step_time):
        assert f"<td>{seconds * 1e3:.3g} ms</td>" in html
    assert "on 32 ranks" in html and "The simulation draws the jitter" in html
    assert "computes longest" in page.simulation.figure.summary
    page.simulation.opened.value = False
    assert page.simulation.body.children == ()


@pytest.mark.parametrize(("name", "value"), [("fidelity", "events"), ("seed", 5), ("steps", 4)])
def test_each_control_of_the_section_moves_something(page, name, value):
    before = shown(page)
    page.simulation.controls[name].value = value
    assert shown(page) != before and not stale(page)


@pytest.mark.parametrize(("name", "value"), [("nodes", 2), ("overlap", False), ("batch", 64)])
def test_it_follows_the_page_where_that_is_quick(page, name, value):
    before = shown(page)
    page.move(f"strategy.{name}", value)
    assert shown(page) != before and not stale(page)


def test_where_it_is_not_quick_what_is_shown_is_marked_as_of_other_settings(page):
    before = page.simulation.table.value
    page.move("strategy.nodes", 32)
    page.simulation.controls["fidelity"].value = "events"
    page.move("strategy.bucket", 10e6)
    assert not quick(page.experiment, "events", 1)
    assert stale(page) and "for other settings" in page.simulation.said.value
    assert page.simulation.table.value != before
    page.simulation.controls["fidelity"].value = "rounds"
    assert not stale(page) and page.simulation.said.value == ""


def test_what_a_page_does_not_simulate_is_reported_with_numbers_and_ways_out(page):
    page.simulation.controls["fidelity"].value = "events"
    page.move("strategy.nodes", 32)
    page.move("strategy.allreduce", "ring")
    assert "522,240 messages" in page.simulation.said.value and stale(page)
    page.simulation.again.click()
    assert "fidelity rounds" in page.simulation.said.value
    page.simulation.controls["fidelity"].value = "rounds"
    assert page.simulation.said.value == "" and not stale(page)


def test_mistakes_and_impatience_are_reported(page, monkeypatch):
    def fails(*_):
        raise SpecError("<b>no such thing</b>")

    def tires(*_):
        raise Cancelled(1.0, 10)

    for act, words in (
        (fails, "&lt;b&gt;no such thing"),
        (tires, f"Given up after {PATIENCE:g} s"),
    ):
        monkeypatch.setattr(section, "simulate_step", act)
        page.simulation.again.click()
        assert words in page.simulation.said.value and stale(page)


def test_no_jitter_leaves_the_seed_nothing_to_move():
    page = Explorer(GOYAL.set({"machine.jitter": 0.0, "strategy.nodes": 2, "run.seed": 3}))
    assert page.simulation.controls["seed"].disabled and page.simulation.controls["seed"].value == 3
    page.load(GOYAL)
    assert (
        not page.simulation.controls["seed"].disabled
        and page.simulation.controls["seed"].value == 0
    )


@pytest.mark.parametrize("run", replays(), ids=lambda run: run.name)
def test_every_replay_is_simulated_or_says_what_is_too_much(run):
    if run.experiment.strategy.is_split:
        assert "this page draws" in too_much(run.experiment, "rounds", 1)
        return
    assert too_much(run.experiment, "rounds", 1) == ""
    found = simulate_step(predict(run.experiment), "rounds", 0, 1, None)
    assert f"on {int(run.experiment.devices):,} ranks" in simulated_html(found)
    assert gantt_of(found)["summary"]


def test_without_jitter_and_contention_no_term_differs():
    found = simulate_step(predict(GOYAL.set({"machine.jitter": 0.0})), "events", 0, 1, None)
    html = simulated_html(found)
    assert "No term differs" in html and "simulated, rounds" in html and "simulated, events" in html
    assert set(re.findall(r"[+-]\d+\.\d+%", html)) <= {"+0.00%", "-0.00%"}


@pytest.mark.parametrize("algorithm", ["ring", "hierarchical", "binomial", "torus_2d"])
@pytest.mark.parametrize("nodes", [1, 3])
def test_messages_are_counted_as_the_simulator_sends_them(algorithm, nodes):
    e = GOYAL.set({"strategy.allreduce": algorithm, "strategy.nodes": nodes})
    timeline = simulate(e, "events", steps=2, messages=10**6)
    assert messages(e, 2) == np.count_nonzero(timeline.peer >= 0)


def test_limits_name_what_is_too_much():
    summit = moved(Choice(preset("goyal-2017")), "machine.name", "summit")[1].experiment
    large = summit.set({"strategy.nodes": 2048})
    assert f"{12288:,} ranks" in too_much(large, "rounds", 1)
    assert f"{MOST_RANKS['rounds']:,}" in too_much(large, "rounds", 1)
    server = summit.set({"strategy.nodes": 512, "strategy.allreduce": "parameter_server"})
    assert "with a parameter server on up to 2,048" in too_much(server, "rounds", 1)
    small = summit.set({"strategy.nodes": 512, "strategy.bucket": 1e6})
    assert f"up to {MOST_ROWS:,}" in too_much(small, "rounds", 16)
    assert "fewer steps" in too_much(small, "rounds", 16)
    ring = GOYAL.set({"strategy.allreduce": "ring"})
    assert f"up to {MOST_MESSAGES:,}" in too_much(ring, "events", 1)
    assert messages(GOYAL.set({"strategy.nodes": 1, "strategy.devices_per_node": 1}), 4) == 0


def test_the_chart_shows_the_first_two_of_many_steps():
    found = simulate_step(predict(GOYAL.set({"strategy.nodes": 2})), "rounds", 1, 8, None)
    assert gantt_of(found)["summary"].startswith("The first 2 of 8 steps.")
    whole = found.timelines["rounds"]
    two = first_steps(whole, 2)
    same = simulate(found.experiment, seed=1, steps=2)
    assert np.count_nonzero(two.where("compute", "update")) == 2 * whole.ranks
    work = [t.select(t.where("compute")).sorted() for t in (two, same)]
    np.testing.assert_array_equal(work[0].stop, work[1].stop)


UPDATES = {
    "local": {"strategy.update": "local", "strategy.local_steps": 4},
    "asynchronous": {"strategy.update": "asynchronous", "strategy.servers": 2},
}


@pytest.mark.parametrize("update", UPDATES)
def test_other_ways_to_update_are_found_and_limited_as_well(update):
    e = GOYAL.set({"strategy.nodes": 2, "calibration.rate": 0.0, **UPDATES[update]})
    found = simulate_step(predict(e), "events", 0, 5, None)
    html, summary = simulated_html(found), gantt_of(found)["summary"]
    if update == "local":
        assert "8 steps on 16 ranks" in html and summary.startswith("The first 4 of 8 steps.")
        assert "The others wait for the slowest of each step" in summary
    else:
        assert "5 steps on 16 ranks, asynchronous" in html
        assert "none waits for the slowest" in summary
    many = e.set({"strategy.nodes": 32})
    assert 0 < messages(many, 5) < messages(GOYAL.set({"strategy.nodes": 32}), 5)
    assert too_much(e, "events", 5) == ""


def test_first_steps_of_ranks_that_are_not_in_step():
    def step(rank, number):
        start = number * (rank + 1.0)
        common = {"rank": rank, "name": 0, "ranks": 2, "source": "simulated"}
        return [
            columns(
                stream="compute",
                kind="forward",
                names=["forward"],
                start=start,
                stop=start + rank + 0.5,
                **common,
            ),
            columns(
                stream="compute",
                kind="update",
                names=["update"],
                start=start + rank + 0.5,
                stop=start + rank + 1,
                **common,
            ),
        ]

    whole = join([part for rank in range(2) for number in range(4) for part in step(rank, number)])
    two = first_steps(whole, 2)
    assert [two.stop[two.rank == rank].max() for rank in range(2)] == [2.0, 4.0]


def test_soon_calls_the_newest_once_the_controls_rest():
    heard = []

    async def moves():
        soon = Soon(0.01)
        for name in "abc":
            soon(lambda name=name: heard.append(name))
        await asyncio.sleep(0.05)
        soon(lambda: heard.append("never"))
        soon.cancel()
        await asyncio.sleep(0.03)

    with ThreadPoolExecutor(1) as own:  # browser tests may have left this thread a loop that runs
        own.submit(asyncio.run, moves()).result()
    assert heard == ["c"]
    Soon(1.0)(lambda: heard.append("at once"))
    assert heard[-1] == "at once"
