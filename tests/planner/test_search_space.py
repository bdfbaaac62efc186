"""Every combination is legal, or counted once with its reason."""

from math import prod

import numpy as np
import pytest

from lib_dlhpc import load
from lib_dlhpc.errors import SpecError
from lib_dlhpc.planner import search_space as module
from lib_dlhpc.planner.search_space import SAME, axes_of, space
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.catalog import names
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import RUN_SCHEDULES, SCHEDULES

RUN = Experiment(
    model={"family": "gpt", "layers": 3, "hidden": 16, "heads": 2, "sequence": 8, "vocabulary": 16},
    machine={"name": "laptop", "devices_per_node": 4},
    strategy={"devices_per_node": 4, "batch": 2},
)
CHOICES = {
    "tensor": [1, 2, 3],
    "pipeline": [1, 2, 4],
    "spatial": [1, 2],
    "sequence_parallel": [False, True],
    "microbatches": [1, 2, 4],
    "schedule": ["gpipe", "1f1b", "interleaved", "zb-h1", "dualpipe"],
    "chunks": [1, 2],
    "zero": [0, 1, 3],
    "recompute": ["none"],
    "offload": ["none", "activations"],
    "shards": [0, 2],
}


@pytest.mark.parametrize("most", [2**20, 3], ids=["in a table", "sorted"])
def test_rows_of_one_kind_have_the_same_values(most, monkeypatch):
    """In the order in which kinds occur first; an axis that the space lacks changes nothing."""
    monkeypatch.setattr(module, "KINDS", most)
    found = space(RUN, CHOICES)
    for axes in (("schedule",), ("pipeline", "zero", "shards"), ("nodes",)):
        rows, kind = found.kinds(*axes)
        values = list(zip(*(found.columns[n] for n in axes if n in found.columns), strict=True))
        values = values or [()] * len(found)
        assert [values[row] for row in rows] == list(dict.fromkeys(values))
        assert [values[row] for row in rows[kind]] == values


def test_all_are_legal_or_counted():
    found = space(RUN, CHOICES)
    assert len(found) + sum(found.left_out.values()) == prod(map(len, CHOICES.values()))
    assert len({tuple(found.changes(row).items()) for row in range(len(found))}) == len(found)
    for row in range(len(found)):
        one = RUN.set(found.changes(row))  # raises where it is not legal
        assert one.global_batch == RUN.global_batch and one.devices == 4


@pytest.mark.parametrize(
    ("model", "nodes", "degrees"),
    [
        ("mixtral-8x7b", 2, [1, 2, 4, 8]),  # it has 8 experts
        ("deepseek-v3", 4, [1, 2, 4, 8, 16, 32]),  # 256, and there are 32 devices
        ("llama3-8b", 2, None),
    ],
)
def test_experts_are_varied_where_there_are_any(model, nodes, degrees):
    run = Experiment(model=model, machine="h100-pod", strategy={"nodes": nodes})
    assert axes_of(run).get("experts") == degrees


def test_copies_that_experts_forbid_are_ruled_out_before_they_are_priced():
    """A prediction finds them too, one by one: they were most of the time of a plan of DeepSeek-V3."""
    model = {"family": "decoder", "layers": 2, "hidden": 16, "sequence": 8, "vocabulary": 16}
    model |= {"attention": {"heads": 2}, "feed_forward": {"features": 16}}
    model |= {"experts": {"experts": 8, "chosen": 2, "features": 16}}
    for way in ("by-device", "by-node"):
        run = Experiment(
            model=model,
            machine={"name": "h100-pod", "devices_per_node": 4},
            strategy={"nodes": 2, "batch": 2, "expert_exchange": way},
        )
        choose = {"tensor": [1, 2], "pipeline": [1], "microbatches": [1], "zero": [0]}
        found = space(run, choose | {"recompute": ["none"], "schedule": ["1f1b"], "chunks": [1]})
        legal = {row["strategy.experts"] for row in map(found.changes, range(len(found)))}
        assert legal == {1, 2, 4, 8}
        for row in range(len(found)):
            run.set(found.changes(row))
        assert found.left_out["one copy for a device with tensor"]


def test_no_legal_combination_is_left_out():
    """Where a rule leaves a combination out, the experiment refuses it, but for those that are the same as another."""
    found, legal = space(RUN, CHOICES), 0
    kept = {tuple(sorted(found.changes(row).items())) for row in range(len(found))}
    for tensor in CHOICES["tensor"]:
        for pipeline in CHOICES["pipeline"]:
            for schedule in CHOICES["schedule"]:
                for zero in CHOICES["zero"]:
                    if 4 % (tensor * pipeline):
                        continue
                    data = 4 // (tensor * pipeline)
                    changes = {"tensor": tensor, "pipeline": pipeline, "schedule": schedule}
                    changes |= {"zero": zero, "microbatches": 4, "batch": 8 // data, "data": data}
                    fields = {f"strategy.{name}": given for name, given in changes.items()}
                    same = (pipeline == 1 and schedule != "1f1b") or (zero and data == 1)
                    same = same or schedule == "interleaved" or (8 // data) % 4
                    try:
                        RUN.set(fields)
                    except SpecError:
                        continue
                    if same:
                        continue
                    legal += 1
                    rest = {
                        "spatial": 1,
                        "context": 1,
                        "sequence_parallel": False,
                        "chunks": 1,
                        "shards": 0,
                    }
                    rest |= {"recompute": "none", "offload": "none"}
                    fields |= {f"strategy.{name}": given for name, given in rest.items()}
                    assert tuple(sorted(fields.items())) in kept, fields
    assert legal > 5 and found.left_out[SAME]


@pytest.mark.parametrize("name", names("presets") + names("replays"))
def test_a_run_of_the_catalog_is_among_its_own_layouts(name):
    run = load(name)
    found = space(run)
    same = [found.columns[field] == getattr(run.strategy, field) for field in axes_of(run)]
    assert np.logical_and.reduce(same).sum() == 1


def test_fused_attention_is_split_by_position_too():
    """It stores no scores to recompute selectively, but what lies between has positions."""
    run = RUN.set({"strategy.fused_attention": "on"})
    found = space(run, {"schedule": ["1f1b"]}).columns
    assert found["sequence_parallel"].any() and "selective" not in found["recompute"]


def test_schedules_that_do_not_run_are_tried_where_they_are_asked_for():
    assert {*space(RUN, {}).columns["schedule"].tolist()} <= {*RUN_SCHEDULES}
    found = space(RUN, {"schedule": [*SCHEDULES]})
    dual = found.columns["schedule"] == "dualpipe"
    assert dual.any() and (found.columns["pipeline"][dual] % 2 == 0).all()
    assert any("dualpipe" in reason for reason in found.left_out)
    own = space(RUN.set({"strategy.schedule": "dualpipe"}), {})
    assert "dualpipe" in own.columns["schedule"].tolist()


def test_bounds_keep_the_default_values_within_them():
    every, some = space(RUN, {}), space(RUN, {"tensor": {"least": 2}, "zero": {"most": 1}})
    assert set(some.columns["tensor"]) == set(every.columns["tensor"]) - {1}
    assert set(some.columns["zero"]) == {0, 1}


@pytest.mark.parametrize(
    ("choose", "word"),
    [
        ({"tensr": [1]}, "tensor"),
        ({"tensor": []}, "at least one"),
        ({"pipeline": {"least": 3, "most": 3}}, "legal here: 1, 2"),
    ],
)
def test_a_field_that_cannot_be_chosen(choose, word):
    with pytest.raises(SpecError, match=word):
        space(RUN, choose)


MIXTURE = Experiment(
    model={
        "family": "decoder",
        "layers": 4,
        "hidden": 64,
        "sequence": 32,
        "vocabulary": 64,
        "attention": {"heads": 4},
        "feed_forward": {"features": 96},
        "experts": {"experts": 16, "chosen": 4, "features": 32},
    },
    machine={"name": "h100-pod", "devices_per_node": 4},
    strategy={"nodes": 4, "batch": 4, "precision": "bf16"},
)


@pytest.mark.parametrize("own", [{}, {"strategy.experts": 8}])
def test_copies_are_left_out_where_they_are_refused_or_the_same(own):
    """Each combination of these axes is legal, refused by a prediction, or the same as with more copies."""
    choose = {"tensor": [1, 2, 4], "pipeline": [1, 2], "microbatches": [2], "recompute": ["none"]}
    choose |= {"schedule": ["1f1b"], "chunks": [1], "zero": [0], "sequence_parallel": [False]}
    choose |= {} if own else {"experts": [1, 2, 4, 8]}
    run = MIXTURE.set(own)
    ways = ("direct", "by-device", "by-node")
    every = space(run, choose | {"expert_exchange": list(ways)})
    kept = [every.changes(row) for row in range(len(every))]
    direct = space(run, choose | {"expert_exchange": ["direct"]})
    assert {each["strategy.expert_exchange"] for each in kept} == {*ways}
    for row in range(len(direct)):
        other, found = direct.changes(row), []
        for way in ways:
            changes = other | {"strategy.expert_exchange": way}
            try:
                seconds = float(predict(run.set(changes)).step_time)
            except SpecError:
                assert way == "direct" or changes not in kept
                continue
            assert (changes in kept) == (seconds not in found), changes
            found.append(seconds)


def test_without_copies_by_device_those_by_node_stay_in_one_node():
    run = MIXTURE.set({"strategy.experts": 4})
    found = space(run, {"expert_exchange": ["direct", "by-node"], "tensor": [1]})
    assert {*found.columns["expert_exchange"].tolist()} == {"direct", "by-node"}


def test_light_recomputation_is_tried_where_it_is_asked_for():
    assert "light" not in space(MIXTURE, {}).columns["recompute"].tolist()
    for found in (space(MIXTURE, {"recompute": ["light"]}), space(MIXTURE.set(LIGHT), {})):
        assert "light" in found.columns["recompute"].tolist()


LIGHT = {"strategy.recompute": "light"}


@pytest.mark.parametrize(("sequence", "degrees"), [(8192, [1]), (2**17, [1, 2, 4, 8, 16])])
def test_the_context_degree_varies_where_a_sequence_is_long(sequence, degrees):
    run = load("llama3-8b@h100-pod").set({"strategy.nodes": 6, "model.sequence": sequence})
    assert axes_of(run)["context"] == degrees
    assert axes_of(run, {"context": [2]})["context"] == [2]
