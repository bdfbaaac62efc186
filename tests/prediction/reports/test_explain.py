"""Laws of an explanation: it shows the number that was used, and where that number comes from."""

import re

import pytest

from lib_dlhpc import Experiment, loads
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.limits.fit import Search
from lib_dlhpc.prediction.reports.explain import explain
from lib_dlhpc.prediction.reports.report import as_dict, as_text, configurations_text
from lib_dlhpc.prediction.storage.profile import slides_run
from lib_dlhpc.prediction.validation.replays import replays
from lib_dlhpc.schedules import COLLECTIVES
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.strategy import ALLREDUCES
from lib_dlhpc.spec.units import format_quantity

RUN = Experiment(
    model="resnet50",
    dataset="imagenet",
    machine="summit",
    strategy={"nodes": 4},
    storage={"tier": "nvme"},
)


def inputs_of(run, part):
    found = {item.name: item for item in explain(predict(run))}[part]
    return {name: (value, source) for name, value, source in found.inputs}


def test_every_allreduce_has_its_formula_and_source():
    for allreduce in ALLREDUCES:
        explanation = explain(predict(RUN.set({"strategy.allreduce": allreduce})))
        formulas = [item.formula for item in explanation]
        assert any(COLLECTIVES["allreduce"][allreduce].formula in formula for formula in formulas)
        assert all(item.source and item.assumes and item.value for item in explanation)


def test_the_machine_is_the_source_where_it_overrides_the_link():
    link = catalog.read("links", "ib-edr")
    machine = catalog.read("machines", "summit")
    found = inputs_of(RUN, "communication")
    assert (
        machine["sources"]["inter_node.efficiency"]["from"]
        in found["share of it reached between nodes"][1]
    )
    assert link["sources"]["bandwidth"]["from"] in found["line rate between nodes"][1]
    one = inputs_of(RUN.set({"strategy.nodes": 1}), "communication")
    assert machine["sources"]["intra_node.bandwidth"]["from"] in one["line rate inside a node"][1]


@pytest.mark.parametrize(
    ("nodes", "inside", "between"),
    [(4, "domain of 4 nodes", ""), (36, "domain of 18 nodes", "domains")],
)
def test_links_of_a_domain_are_named_as_such(nodes, inside, between):
    rack = RUN.set({"machine.name": "gb200-nvl72", "strategy.nodes": nodes})
    rates = [name for name in inputs_of(rack, "communication") if name.startswith("line rate")]
    expected = [f"line rate inside a {inside}", f"line rate between {between}"]
    assert rates == expected[: 1 + bool(between)]


@pytest.mark.parametrize(
    ("change", "part", "name"),
    [
        ({"machine.inter_node.bandwidth": 1e9}, "communication", "line rate between nodes"),
        (
            {"machine.inter_node.efficiency": 0.5},
            "communication",
            "share of it reached between nodes",
        ),
        (
            {"machine.inter_node": {"name": "ib-hdr", "efficiency": 0.92}},
            "communication",
            "share of it reached between nodes",
        ),
        ({"machine.nics": 3}, "communication", "NICs per node"),
        ({"machine.device.peak.fp32": 1e12}, "compute", "peak rate, fp32"),
        ({"machine.device.memory_bandwidth": 1e9}, "compute", "memory bandwidth"),
        ({"machine.storage.nvme.bandwidth": 1e9}, "input stall", "read bandwidth"),
        ({"machine.device.memory": 8e9}, "memory of one device", "capacity"),
    ],
)
def test_a_number_that_was_changed_is_given_and_no_publication_stands_behind_it(change, part, name):
    assert inputs_of(RUN, part)[name][1] not in ("", "given")
    assert inputs_of(RUN.set(change), part)[name][1] == "given"


@pytest.mark.parametrize("replay", replays(), ids=lambda replay: replay.name)
def test_every_replay_can_be_read_explained_and_written(replay):
    prediction = predict(replay.experiment)
    text = as_text(prediction, explained=True)
    assert not re.search(r"\b(nan|None)\b", text)
    plain = as_dict(prediction)
    assert sum(plain["terms"].values()) == pytest.approx(plain["step_time"])
    assert replay.published_time > 0 and replay.source


def test_extremes_are_explained_too():
    nothing = {"machine.device.idle_power": 0, "machine.device.busy_power": 0}
    quiet = RUN.set({**nothing, "machine.node_power": 0})
    alone = RUN.set({"strategy.nodes": 1, "strategy.devices_per_node": 1, "storage.tier": ""})
    extra = RUN.set({"machine.storage.ram": {"bandwidth": 1e9}, "storage.tier": "ram"})
    for run in (quiet, alone, extra):
        assert "nan" not in as_text(predict(run), explained=True)


def test_a_machine_written_out_has_no_source_but_you():
    run = loads("""
        model = "mlp-digits"
        dataset = "digits"
        [machine.device]
        peak = { fp32 = "1 TFLOP/s" }
        memory = "16 GB"
        memory_bandwidth = "100 GB/s"
        idle_power = 0
        busy_power = 10
        [machine.intra_node]
        latency = 0
        bandwidth = "1 GB/s"
        [machine.inter_node]
        latency = 0
        bandwidth = "1 GB/s"
    """)
    assert {inputs_of(run, "compute")[n][1] for n in ("peak rate, fp32", "memory bandwidth")} == {
        "given"
    }


SPLITS = {
    "tensor": {"strategy.tensor": 6},
    "pipeline": {"strategy.pipeline": 4, "strategy.microbatches": 8},
    "spatial": {"strategy.spatial": 2},
    "recompute": {"strategy.recompute": "full"},
    "offload": {"strategy.offload": "all", "strategy.offload_to": "nvme"},
    "zero": {"strategy.zero": 3},
}


@pytest.mark.parametrize("name", SPLITS)
def test_a_split_network_is_explained_by_what_it_is(name):
    prediction = predict(RUN.set(SPLITS[name]))
    explained = {item.name: item for item in explain(prediction)}
    assert all(item.source and item.assumes and item.value for item in explained.values())
    for kind, cost in prediction.messages.items():
        shown = any(kind in each for each in explained if each.endswith("messages") or kind == each)
        assert shown == bool(cost.total > 0), kind
    assert ("pipeline bubble" in explained) == (name == "pipeline")
    assert ("recomputation" in explained) == (name == "recompute")
    text = as_text(prediction, explained=True)
    assert not re.search(r"\bnan\b|\bNone\b", text)  # Narayanan is a name
    plain = as_dict(prediction)
    assert sum(plain["terms"].values()) == pytest.approx(plain["step_time"])
    assert sum(plain["exposed"].values()) == pytest.approx(plain["terms"]["exposed communication"])


def test_a_run_that_does_not_fit_says_with_what_it_does():
    run = RUN.set({"strategy.batch": 512})
    search = Search(run)
    assert "`dlhpc plan --set strategy.nodes=N` searches" in configurations_text(search)
    search.run(20)
    text = as_text(predict(run)) + configurations_text(search)
    assert "WALL" in text and "fits with" in text
    assert "20 configurations" in text and f"not tried: {search.left}" in text


@pytest.mark.parametrize(
    ("access", "words"),
    [("stream", "lists"), ("stage", "copies the data set"), ("cooperative", "its part")],
)
def test_the_start_says_what_is_done_before_the_first_step(access, words):
    run = slides_run(access=access)
    (time,) = [part for part in explain(predict(run)) if part.name == "time to train"]
    (start,) = [(value, source) for name, value, source in time.inputs if name == "start"]
    assert words in start[1] and start[0] == format_quantity(float(predict(run).start_time), "s")


def test_no_configuration_is_shown_that_changes_more_than_a_faster_one_for_nothing():
    """Context parallelism beside ZeRO 3 is slower, and a device holds as much: one sequence."""
    llama = {"model.name": "llama3-8b", "dataset.name": "webtext", "machine.name": "h100-pod"}
    strategy = {"nodes": 8, "batch": 1, "precision": "bf16"}
    search = Search(RUN.set(llama | {f"strategy.{key}": value for key, value in strategy.items()}))
    search.run(150)
    found = [way.words for way in search.ordered()]
    assert any(words.startswith("ZeRO 3, context") for words in found[:3])
    shown = configurations_text(search).splitlines()[:3]
    assert [line.split("with")[1].split(":")[0].strip() for line in shown] == [
        "ZeRO 3",
        "ZeRO 1",
        "ZeRO 2",
    ]


def test_configurations_on_the_devices_of_the_run_come_before_those_on_more():
    """On 8 nodes a step takes a seventh of the time, but not with the devices that there are."""
    llama = {"model.name": "llama3-8b", "dataset.name": "webtext", "machine.name": "h100-pod"}
    one = {"strategy.nodes": 1, "strategy.batch": 1, "strategy.zero": 3}
    search = Search(RUN.set(llama | one))
    search.run(150)
    assert "8 nodes" in search.ordered()[0].words
    *here, more = configurations_text(search).splitlines()
    assert "8 nodes" in more and len(here) == 3
    assert not any("nodes" in line for line in here)
