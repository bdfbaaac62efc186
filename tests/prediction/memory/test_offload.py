"""Laws of going out of core: bytes that move, what hides them, what is left on the device, and where to."""

import dataclasses
from math import inf

import pytest

from lib_dlhpc import Experiment, SpecError
from lib_dlhpc.costs.offload import OffloadLink, OffloadTraffic
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.memory.offload import (
    PAGE_FAULT,
    in_a_pass,
    need,
    paged_time,
    with_the_update,
)
from lib_dlhpc.spec.machine import Link, read_link

RUN = Experiment(
    model={
        "family": "gpt",
        "layers": 12,
        "hidden": 1024,
        "heads": 16,
        "sequence": 1024,
        "vocabulary": 8192,
    },
    dataset="webtext",
    machine="dlperf-v100",
    strategy={"nodes": 1, "batch": 4, "precision": "fp16", "optimizer": "adam"},
)
KEPT = ("weights", "master weights", "gradients", "optimizer state", "activations")
OUT = {word: RUN.set({"strategy.offload": word}) for word in ("activations", "all")}


def test_what_is_offloaded_leaves_the_device():
    plain, activations, everything = (predict(run) for run in (RUN, *OUT.values()))
    assert activations.memory["activations"] < 0.4 * plain.memory["activations"]
    assert activations.memory["weights"] == plain.memory["weights"]
    for name in ("weights", "gradients", "optimizer state", "master weights"):
        assert everything.memory[name] < 0.5 * plain.memory[name]
    assert everything.offloaded > activations.offloaded > 0
    for found in (activations, everything):
        held = [sum(each.memory[name] for name in KEPT) for each in (found, plain)]
        assert held[0] + found.offloaded == pytest.approx(held[1], rel=1e-9)


def test_with_enough_bandwidth_nothing_shows_and_the_required_one_is_enough():
    for run in OUT.values():
        need = predict(run).offloading
        rate = {"machine.host_link.efficiency": 1.0, "machine.host_link.latency": 0.0}
        enough = run.set({**rate, "machine.host_link.bandwidth": 1.001 * need.required})
        short = run.set({**rate, "machine.host_link.bandwidth": 0.5 * need.required})
        assert predict(enough).exposed["offload"] == pytest.approx(0.0, abs=1e-12)
        assert predict(short).exposed["offload"] > 0
        assert predict(short).offloading.required == pytest.approx(need.required)
        terms = predict(short).terms
        assert sum(terms.values()) == pytest.approx(predict(short).step_time)


def test_a_pass_takes_the_longer_of_computing_and_moving():
    way = OffloadLink(out=10.0, back=5.0, latency=0.0, room=1e9)
    assert in_a_pass(way, 20.0, 0.0, 3.0).exposed == 0.0
    assert in_a_pass(way, 20.0, 20.0, 3.0).exposed == pytest.approx(1.0)
    assert in_a_pass(way, 0.0, 0.0, 3.0).cost.total == 0.0
    assert OffloadTraffic(1, 2, 3, 4, 5, 6).moved(10) == 10 * 10 + 11


def test_an_update_moves_while_the_last_backward_pass_goes_and_while_it_computes():
    way = OffloadLink(out=10.0, back=5.0, latency=0.0, room=1e9)
    away = OffloadTraffic(backward_in=10.0, update_out=40.0, update_in=15.0)  # 2 s, then 4 s
    assert with_the_update(way, away, 2.0, 1.0).exposed == pytest.approx(3.0)
    assert with_the_update(way, away, 4.5, 1.0).exposed == pytest.approx(0.5)
    assert with_the_update(way, away, 5.0, 1.0).exposed == 0.0
    slow = with_the_update(way, away, 0.0, 1.0)  # what the pass itself has to wait for is its own
    assert slow.exposed == pytest.approx(3.0) and slow.cost.total == pytest.approx(4.0)


def test_activations_move_out_and_in_once():
    moved = predict(OUT["activations"]).offloading.moved
    kept = predict(RUN).memory["activations"]
    assert moved == pytest.approx(2 * kept)


def test_a_storage_tier_is_slower_and_one_that_is_not_there_is_named():
    host = predict(OUT["activations"])
    disk = predict(OUT["activations"].set({"strategy.offload_to": "nvme"}))
    assert disk.step_time > host.step_time
    assert disk.offloading.required == host.offloading.required
    assert disk.offloading.there < host.offloading.there
    with pytest.raises(SpecError, match=r"offload_to = 'nvm'.*host, nvme"):
        RUN.set({"strategy.offload_to": "nvm"})


def test_a_host_without_room_is_a_wall():
    run = OUT["all"]
    assert predict(run).fits and not predict(run).walls
    tight = predict(run.set({"machine.host_memory": 1e9}))
    assert not tight.fits
    assert any("host" in wall for wall in tight.walls)


def test_pages_one_by_one_are_slower_than_fetching_ahead():
    need = predict(OUT["activations"]).offloading
    assert need.paged > need.moved / need.there
    small, large = (paged_time(RUN, 1e9, page) for page in (64 * 1024, 2 * 1024**2))
    assert small - large == pytest.approx((1e9 / 65536 - 1e9 / 2**21) * PAGE_FAULT, rel=1e-3)


def test_a_machine_that_says_nothing_has_pcie_3():
    default = next(f for f in dataclasses.fields(type(RUN.machine)) if f.name == "host_link")
    assert default.default_factory() == read_link("pcie3", "link")
    assert isinstance(default.default_factory(), Link)


def test_a_stage_that_does_nothing_in_a_pass_needs_nothing_for_it():
    idle = need(
        OUT["activations"], OffloadTraffic(forward_out=1e6, backward_in=1e6), (1.0, 2.0), 0.0
    )
    assert idle.required == pytest.approx(1e6)
    # What moves beside nothing shows.
    late = need(OUT["activations"], OffloadTraffic(update_out=1e6), (0.0, 0.0), 0.0)
    assert late.required == inf and late.exposed > 0
