"""Laws of an Experiment: TOML in, TOML out, equal; every mistake is a SpecError that names it."""

import os
import tomllib
from pathlib import Path

import numpy as np
import pytest

from lib_dlhpc import Experiment, SpecError, dump, dumps, load, loads
from lib_dlhpc.prediction.validation.replays import replay, replays
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import read_experiment, to_tables
from lib_dlhpc.spec.files import LARGEST_FILE
from lib_dlhpc.spec.machine import read_link, read_machine
from lib_dlhpc.spec.schema import SECTIONS

BASE = """
[model]
name = "resnet50"
[dataset]
name = "imagenet"
[machine]
name = "summit"
[strategy]
nodes = 4
"""
TINY = """
[model]
family = "mlp"
widths = [4, 3]
[dataset]
samples = 10
bytes = "1 kB"
[machine]
[machine.device]
peak = { fp32 = "1 GFLOP/s" }
memory = "1 GB"
memory_bandwidth = "1 GB/s"
idle_power = "1 W"
busy_power = "2 W"
[machine.intra_node]
latency = "1 us"
bandwidth = "1 GB/s"
[machine.inter_node]
latency = "1 us"
bandwidth = "1 Gb/s"
"""


def refusal(text):
    with pytest.raises(SpecError) as error:
        loads(text)
    return str(error.value)


def options_of(model):
    return {"family": model.family, **model.options}


@pytest.fixture(scope="module")
def base():
    return loads(BASE)


# --- what is said comes out ---


def test_a_name_picks_and_a_field_beside_it_overrides():
    run = loads(BASE + '[machine.inter_node]\nbandwidth = "200 Gb/s"\n')
    assert run.machine.inter_node.bandwidth == 25e9
    assert run.machine.inter_node.latency == read_machine("summit").inter_node.latency
    assert run.model.name == "resnet50" and run.model.parameters == 25_557_032


def test_a_name_and_an_inline_table_are_equivalent():
    tables = tomllib.loads(BASE)
    short = {**tables, "model": "resnet50", "dataset": "imagenet", "machine": "summit"}
    assert read_experiment(short) == read_experiment(tables)


def test_a_model_without_a_name_is_built_from_its_family():
    tables = tomllib.loads(BASE)
    named = read_experiment({**tables, "model": "mlp-digits"}).model
    built = read_experiment({**tables, "model": catalog.body("models", "mlp-digits")}).model
    assert named.name == "mlp-digits" and built.name == "mlp network"
    assert built.layers == named.layers


@pytest.mark.parametrize("name", catalog.names("models"))
def test_a_written_model_round_trips_with_the_same_layers(name):
    """Also where a family and a catalog entry share their name."""
    tables = tomllib.loads(BASE)
    for model in (catalog.body("models", name), {"family": catalog.body("models", name)["family"]}):
        try:
            run = read_experiment({**tables, "model": model})
        except SpecError as error:
            assert "needs the option" in str(error)  # a family whose options have no default
            continue
        assert loads(dumps(run)).model.layers == run.model.layers


def test_sections_have_defaults(base):
    assert base.storage.tier == "" and base.calibration.rate == 0 and base.run.epochs == 1
    assert base.devices == 24 and base.devices_per_node == 6 and base.global_batch == 24 * 32


# --- what is wrong is named ---


@pytest.mark.parametrize("section", SECTIONS)
def test_an_unknown_key_in_a_section_is_named(section):
    tables = tomllib.loads(BASE)
    tables.setdefault(section, {})["colour"] = "red"
    with pytest.raises(SpecError, match="colour"):
        read_experiment(tables)


def test_a_key_that_has_moved_names_its_new_place():
    tables = tomllib.loads(BASE)
    tables["training"] = {"test_share": 0.2}
    with pytest.raises(SpecError, match=r"training\.test_share: .*It is dataset\.test_share now"):
        read_experiment(tables)


def test_an_unknown_section_names_the_legal_ones():
    message = refusal(BASE + "[strateggy]\n")
    assert "strateggy" in message and "Did you mean 'strategy'?" in message
    assert all(section in message for section in SECTIONS)


@pytest.mark.parametrize("section", ["model", "dataset", "machine"])
def test_a_missing_section_is_named(section):
    tables = {key: value for key, value in tomllib.loads(BASE).items() if key != section}
    with pytest.raises(SpecError, match=rf"\[{section}\] is missing"):
        read_experiment(tables)


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("value", [1, True, [], [{}], 1.5])
def test_a_section_is_a_table(section, value):
    with pytest.raises(SpecError, match=section):
        read_experiment({**tomllib.loads(BASE), section: value})


CONTRADICTIONS = [
    ("nodes = 5000", ["strategy.nodes = 5000", "4600", "machine.nodes"]),
    ("devices_per_node = 7", ["strategy.devices_per_node = 7", "6"]),
    ("tensor = 5", ["any x 5", "6 devices"]),
    ("data = 5", ["5 x 1", "6 devices"]),
    ("data = 3\ntensor = 3", ["3 x 3", "6 devices"]),
    ("pipeline = 4", ["x 4 x", "6 devices"]),
    ("spatial = 4", ["x 4", "6 devices"]),
    ("update = 'localy'", ["strategy.update = 'localy'", "Did you mean 'local'?", "asynchronous"]),
    ("local_steps = 8", ["strategy.local_steps = 8", "'local'", "'synchronous'", "value is 1"]),
    ("staleness = 3", ["strategy.staleness = 3", "'asynchronous'", "value is 0"]),
    ("update = 'local'\nservers = 2", ["strategy.servers = 2", "'asynchronous'", "'local'"]),
    (
        "nodes = 4000\nupdate = 'asynchronous'\nservers = 601",
        ["strategy.servers = 601", "4000", "4600", "machine.nodes"],
    ),
    ("update = 'asynchronous'\nservers = 0", ["strategy.servers = 0", "at least 1"]),
]


@pytest.mark.parametrize(("lines", "expected"), CONTRADICTIONS)
def test_a_contradiction_names_both_sides(lines, expected):
    message = refusal(BASE.replace("nodes = 4", lines))
    assert all(part in message for part in expected), message


@pytest.mark.parametrize(
    "lines", ["data = 6", "tensor = 6", "data = 2\ntensor = 3", "pipeline = 2"]
)
def test_a_split_that_makes_the_devices_is_legal(lines):
    run = loads(BASE.replace("nodes = 4", lines))
    s = run.strategy
    assert run.global_batch == s.batch * (6 // (s.tensor * s.pipeline * s.spatial))


def test_parameter_servers_are_nodes_beside_those_that_train(base):
    run = base.set({"strategy.update": "asynchronous", "strategy.servers": 3})
    assert run.servers == 3 and run.devices == base.devices and base.servers == 0
    assert run.set({"strategy.servers": 1, "strategy.update": "local"}).servers == 0


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("[storage]\ntier = 'nvm'", ["storage.tier = 'nvm'", "gpfs", "Did you mean 'nvme'?"]),
        (
            "[run]\ncheckpoint_interval = '1 h'",
            ["run.checkpoint_interval", "storage.tier", "legal: "],
        ),
    ],
)
def test_checkpoints_need_storage(lines, expected):
    message = refusal(BASE + lines)
    assert all(part in message for part in expected)


def test_contradictions_in_arrays_are_found(base):
    for key, values in {
        "strategy.nodes": [4, 4601],
        "strategy.devices_per_node": [6, 7],
        "strategy.tensor": [4, 5],
        "strategy.data": [24, 23],
    }.items():
        with pytest.raises(SpecError, match="strategy"):
            base.set({key: np.array(values)})
    with pytest.raises(SpecError, match=r"storage\.tier"):
        base.set({"run.checkpoint_interval": np.array([0.0, 60.0])})
    with pytest.raises(SpecError, match=r"strategy\.local_steps = 8"):
        base.set({"strategy.local_steps": np.array([1, 8])})
    with pytest.raises(SpecError, match=r"strategy\.servers = 4600"):
        base.set({"strategy.update": "asynchronous", "strategy.servers": np.array([1, 4600])})


# --- broken files ---

DEEP = 100_000
BROKEN = [
    "",
    "[",
    "a = ",
    "x = 1\nx = 2",
    "\x00",
    "\ufeff" + BASE,
    "[model]\nname = 3",
    "x = " + "[" * DEEP,
    "x = " + "{a=" * DEEP,
    BASE.replace("nodes = 4", "nodes" + ".a" * 3000 + " = 1"),
    BASE.replace('name = "resnet50"', "family" + ".a" * 3000 + " = 1"),
    BASE + "[run]\nepochs = " + "1" * 5000,
    BASE + "[run]\nepochs = " + "1" * 400,
    BASE + "[run]\nepochs = nan",
    BASE + "[run]\nepochs = 2026-01-01",
    BASE + "#" * LARGEST_FILE,
]


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_a_broken_text_is_a_spec_error_and_a_short_one(text):
    assert len(refusal(text)) < 10_000


def test_a_broken_file_is_named(tmp_path):
    cases = {
        "none.toml": None,
        "latin.toml": BASE.encode() + b"# \xe9\n",
        "broken.toml": b"[",
        "zeros.toml": bytes(100),
    }
    for name, data in cases.items():
        path = tmp_path / name
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(SpecError, match=name):
            load(path)
    with pytest.raises(SpecError, match="no such file"):
        load(tmp_path)
    with pytest.raises(SpecError, match="no such file"):
        load("a\0b")


def test_a_run_of_the_catalog_is_opened_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert dumps(load("goyal-2017")) == dumps(replay("goyal-2017").experiment)
    assert load("llama3-405b").strategy.pipeline > 1  # a preset, which nobody published
    with pytest.raises(SpecError, match=r"no run of that name .* Did you mean 'goyal-2017'\?"):
        load("goyal-2018")
    with pytest.raises(SpecError, match="no such file but a folder, and no run of that name"):
        load(tmp_path)


def test_a_model_on_a_machine_is_a_run_in_one_word(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    usual = {"optimizer": "adam", "precision": "bf16"}
    assert load("llama3-8b@h100-pod") == Experiment("llama3-8b", None, "h100-pod", usual)
    assert load("llama3-8b@summit").strategy.precision == "fp32"  # V100 has no bf16
    assert load("resnet50@h100-pod").strategy.optimizer == "momentum"
    assert load("resnet50@tpu-v4-pod").strategy.precision == "bf16"  # and nothing else
    with pytest.raises(SpecError, match=r"llama3-8b is a model: name its machine too"):
        load("llama-3-8b")
    with pytest.raises(SpecError, match=r"model.name = 'llama8b': .* Did you mean 'llama3-8b'\?"):
        load("llama8b@h100-pod")
    with pytest.raises(SpecError, match=r"machine\.name = '': not in the catalog"):
        load("resnet50@")
    Path("own.toml").write_text('[model]\nname = "resnet50"\n')  # as `dlhpc import model` writes it
    assert load("own.toml@summit") == load("resnet50@summit")
    dump(load("goyal-2017"), Path("goyal.toml"))
    moved = load("goyal.toml@summit")
    assert moved.machine.name == "summit" and moved.strategy == load("goyal-2017").strategy
    assert not moved.calibration.rate and "was not measured on summit" in moved.warnings[0]
    measured = load("goyal.toml")
    there = load(f"goyal.toml@{measured.machine.name}")  # with it
    assert there.calibration == measured.calibration and measured.calibration.rate
    Path("own.toml").write_text("not TOML")
    with pytest.raises(SpecError, match=r"own\.toml@summit: Not valid TOML"):
        load("own.toml@summit")
    dump(load("goyal-2017"), Path("resnet50@summit"))
    assert load("resnet50@summit") == load("goyal-2017")  # a file comes first


def test_json_and_a_model_without_a_machine_say_what_to_do():
    with pytest.raises(SpecError, match="looks like JSON: `dlhpc import model`"):
        loads('{ "model_type": "qwen3" }')
    with pytest.raises(SpecError, match="MODEL@MACHINE adds the usual data set"):
        loads('[model]\nname = "resnet50"\n')


def test_the_machine_after_an_at_may_be_a_file_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("ours.toml").write_text('[machine]\nname = "summit"\nnodes = 7\n')
    assert load("resnet50@ours.toml") == load("resnet50@summit").set({"machine.nodes": 7})
    dump(load("resnet50@ours.toml"), Path("run.toml"))  # of a whole experiment: its machine
    assert load("resnet50@run.toml").machine == load("resnet50@ours.toml").machine
    Path("own.toml").write_text('[model]\nname = "resnet50"\n')
    assert load("own.toml@ours.toml") == load("resnet50@ours.toml")
    with pytest.raises(SpecError, match=r"own\.toml: \[machine\] is missing"):
        load("resnet50@own.toml")
    with pytest.raises(SpecError, match=r"resnet50@none\.toml: no such file"):
        load("resnet50@none.toml")


def test_paths_may_have_an_at_in_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("user@host").mkdir()
    Path("user@host/own.toml").write_text('[model]\nname = "resnet50"\n')
    assert load("user@host/own.toml@summit") == load("resnet50@summit")
    for name in ("user@host/missing.toml", "run@1.toml"):
        with pytest.raises(SpecError, match=rf"{name}: no such file, and no run of that name"):
            load(name)


def test_adamw_is_read_as_adam_whose_decay_it_has():
    run = Experiment(model="llama3-8b", machine="h100-pod", strategy={"optimizer": "adamw"})
    assert run.strategy.optimizer == "adam"


def test_a_file_comes_before_a_run_of_its_name_and_a_folder_does_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("you-2018").mkdir()
    assert load("you-2018") == replay("you-2018").experiment
    Path("goyal-2017").write_text(BASE, encoding="utf-8")
    assert load("goyal-2017") == loads(BASE)


@pytest.mark.parametrize("filler", ["x", "é", "\U0001f600"])
def test_a_file_that_is_too_long_is_refused_and_not_cut(tmp_path, filler):
    """A cut file would be another experiment: what follows the comment must not be lost."""
    path = tmp_path / "long.toml"
    count = LARGEST_FILE // len(filler.encode())
    path.write_text(f"{BASE}# {filler * count}\n[run]\nepochs = 90\n", encoding="utf-8")
    with pytest.raises(SpecError, match="1,000,000 bytes"):
        load(path)


def test_a_file_just_short_enough_is_read_to_its_end(tmp_path):
    path = tmp_path / "long.toml"
    tail = "\n[run]\nepochs = 90\n"
    room = LARGEST_FILE - len(BASE) - len(tail) - 1
    path.write_bytes((BASE + "#" + "x" * room + tail).encode())
    assert path.stat().st_size == LARGEST_FILE
    assert load(path).run.epochs == 90


# --- round trips ---

OVERRIDES = [
    {},
    {"strategy.nodes": 1, "machine.nodes": 2},
    {"machine.inter_node.bandwidth": "12.3 Gb/s", "machine.inter_node.latency": 1 / 3e5},
    {"machine.device.memory": 22919 * 2.0**20, "machine.device.peak.fp64": 1e12 / 3},
    {"machine.intra_node.name": "pcie4", "machine.intra_node.efficiency": 0.5},
    {"machine.inter_node": "ib-ndr", "machine.device.name": "p40"},
    {"machine.storage.ram": {"bandwidth": "100 GB/s", "scope": "node"}, "storage.tier": "ram"},
    {"machine.topology": "torus", "machine.pue": 1.5, "machine.jitter": 0.0},
    {"strategy.update": "local", "strategy.local_steps": 8},
    {
        "strategy.update": "asynchronous",
        "strategy.servers": 2,
        "strategy.staleness": 3,
        "machine.nodes": 3,
        "machine.domain": 1,
    },
]


@pytest.mark.parametrize(
    ("name", "number"),
    [
        (name, number)
        for place, name in enumerate(catalog.names("machines"))
        for number in range(place % 3, len(OVERRIDES), 3)
    ],
)
def test_a_machine_with_an_override_round_trips(base, name, number):
    """Every machine with every third override, and every override on every third machine."""
    run = base.set({"strategy.nodes": 1, "machine.name": name}).set(OVERRIDES[number])
    assert loads(dumps(run)) == run


@pytest.mark.parametrize("name", catalog.names("machines"))
@pytest.mark.parametrize("link", ["intra_node", "inter_node"])
def test_a_removed_override_stays_removed(base, name, link):
    """The machine lays a field over the link's catalog entry; the user asks for the entry's own."""
    run = base.set({"strategy.nodes": 1, "machine.name": name})
    entry = read_link(getattr(run.machine, link).name, link)
    for key in ("latency", "bandwidth", "efficiency"):
        run = run.set({f"machine.{link}.{key}": getattr(entry, key)})
        assert getattr(getattr(run.machine, link), key) == getattr(entry, key)
    assert getattr(run.machine, link) == entry
    assert loads(dumps(run)) == run
    assert run.set({"machine.pue": 1.0}).set({"machine.pue": run.machine.pue}) == run


@pytest.mark.parametrize("name", catalog.names("models"))
def test_every_model_round_trips(base, name):
    run = base.set({"model.name": name})
    again = loads(dumps(run))
    assert again == run and again.model.layers == run.model.layers
    assert options_of(again.model) == options_of(run.model)


@pytest.mark.parametrize("name", catalog.names("datasets"))
def test_every_dataset_round_trips(base, name):
    for changes in ({}, {"dataset.samples": 3}, {"dataset.sample_shape": [1, 2]}):
        run = base.set({"dataset.name": name}).set(changes)
        assert loads(dumps(run)) == run


def test_every_replay_round_trips():
    """Those of published rows do, too: tests/prediction/validation/test_validate.py has them."""
    for each in replays():
        assert loads(dumps(each.experiment)) == each.experiment


def test_what_is_printed_is_the_call_that_makes_it():
    names = {"Experiment": Experiment, "array": np.array, "inf": np.inf}
    for each in replays():
        run, many = each.experiment, each.experiment.set({"run.epochs": np.array([1.0, 2.0])})
        assert eval(repr(run), names) == run and len(repr(run)) < 600
        assert eval(repr(many), names).run.epochs.tolist() == [1.0, 2.0]


def test_unnamed_parts_round_trip():
    run = loads(TINY)
    assert loads(dumps(run)) == run
    assert "name" not in dumps(run)


def test_parts_with_names_of_their_own_round_trip():
    names = {"model": "ours", "dataset": "our data", "machine": "our cluster"}
    named = TINY
    for section, name in names.items():
        named = named.replace(f"[{section}]\n", f'[{section}]\nname = "{name}"\n')
    named = named.replace("[machine.device]\n", '[machine.device]\nname = "our device"\n')
    run = loads(named)
    assert {section: getattr(run, section).name for section in names} == names
    assert run.machine.device.name == "our device"
    again = loads(dumps(run.set({"machine.nodes": 3})))
    assert again == run.set({"machine.nodes": 3}) and again.machine.name == "our cluster"
    moved = run.set({"machine.name": "summit"})
    assert moved.machine == read_machine("summit")


def test_only_what_differs_is_written(base):
    changed = base.set({"machine.inter_node.bandwidth": "1 GB/s", "strategy.batch": 64})
    assert tomllib.loads(dumps(changed)) == {
        "model": {"name": "resnet50"},
        "dataset": {"name": "imagenet"},
        "machine": {"name": "summit", "inter_node": {"bandwidth": "1 GB/s"}},
        "strategy": {"nodes": 4, "batch": 64},
    }


# --- set ---


def test_set_does_not_modify_the_original(base):
    before = dumps(base)
    base.set({"strategy.nodes": 8, "machine.storage.nvme.bandwidth": 1.0})
    assert dumps(base) == before


def test_set_accepts_dotted_keys_of_every_section(base):
    run = base.set(
        {
            "strategy.nodes": 8,
            "machine.inter_node.bandwidth": "1 GB/s",
            "machine.device.peak.fp32": "1 TFLOP/s",
            "machine.storage.nvme.capacity": "1 TB",
            "model.classes": 10,
            "dataset.samples": 100,
            "storage.tier": "nvme",
            "calibration.rate": 100,
            "run.checkpoint_interval": "1 h",
        }
    )
    assert run.strategy.nodes == 8 and run.machine.inter_node.bandwidth == 1e9
    assert run.machine.device.peak["fp32"] == 1e12
    assert run.machine.device.peak["fp16"] == base.machine.device.peak["fp16"]
    assert run.machine.storage["nvme"].capacity == 1e12
    assert run.model.output_shape == (10,) and run.dataset.samples == 100
    assert run.run.checkpoint_interval == 3600


def test_a_new_machine_drops_the_old_overrides(base):
    run = base.set({"machine.nodes": 10, "machine.inter_node.bandwidth": 1e9})
    assert run.set({"machine.name": "bigbasin"}).machine == read_machine("bigbasin")
    assert run.set({"model.name": "vgg16"}).machine == run.machine


def test_a_new_link_drops_the_old_overrides(base):
    run = base.set({"machine.inter_node.bandwidth": 1e9, "machine.pue": 2.0})
    run = run.set({"machine.inter_node.name": "ib-hdr"})
    assert run.machine.inter_node == read_link("ib-hdr", "x") and run.machine.pue == 2.0


def test_the_order_of_changes_does_not_matter(base):
    changes = {
        "machine.nodes": 10,
        "machine.inter_node.bandwidth": 1e9,
        "machine.inter_node.name": "ib-hdr",
        "machine.name": "bigbasin",
    }
    one = base.set(changes)
    other = base.set(dict(reversed(changes.items())))
    assert one == other
    assert one.machine.nodes == 10 and one.machine.inter_node.bandwidth == 1e9
    assert one.machine.inter_node.name == "ib-hdr" and one.machine.name == "bigbasin"


def test_changes_are_validated_jointly(base):
    run = base.set({"strategy.nodes": 5000, "machine.nodes": 5000})
    assert run.devices == 30_000


@pytest.mark.parametrize(
    "key",
    [
        "nodes",
        "",
        ".",
        "strateg.nodes",
        "strategy",
        "strategy.",
        "strategy.nodes.x",
        "machine.nodes.x",
    ],
)
def test_a_wrong_key_is_a_spec_error(base, key):
    with pytest.raises(SpecError, match=r"key|field|value|expected"):
        base.set({key: 3})


def test_arrays_travel_through_set_after_set(base):
    nodes = np.array([1, 2, 4])
    run = base.set({"strategy.nodes": nodes, "machine.pue": np.array([1.0, 1.1, 1.2])})
    run = run.set({"machine.inter_node.bandwidth": 1e9})
    assert list(run.devices) == [6, 12, 24]
    assert list(run.machine.pue) == [1.0, 1.1, 1.2] and run.machine.inter_node.bandwidth == 1e9


# --- files ---


def test_dump_and_load_agree(base, tmp_path):
    path = tmp_path / "run.toml"
    dump(base, path)
    assert load(path) == load(str(path)) == base
    assert os.listdir(tmp_path) == ["run.toml"]


@pytest.mark.parametrize("step", ["pathlib.Path.write_text", "os.replace"])
def test_a_failed_write_leaves_only_the_old_file(base, tmp_path, monkeypatch, step):
    path = tmp_path / "run.toml"
    dump(base, path)
    before = path.read_bytes()

    def full(target, *_, **__):
        with open(target, "a") as file:
            file.write("[mod")
        raise OSError("disk full")

    monkeypatch.setattr(step, full)
    with pytest.raises(OSError, match="disk full"):
        dump(base.set({"strategy.batch": 64}), path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["run.toml"]


def test_what_cannot_be_written_leaves_nothing(base, tmp_path):
    with pytest.raises((TypeError, SpecError)):
        dump(base.set({"strategy.batch": np.array([1, 2])}), tmp_path / "run.toml")
    assert os.listdir(tmp_path) == []


def test_a_path_is_no_catalog_name(tmp_path, monkeypatch):
    (tmp_path / "x.toml").write_text('samples = 1\nbytes = "1 B"\n')
    monkeypatch.setattr(catalog, "ROOT", tmp_path / "datasets")
    for name in ("../x", "../../catalog/machines/summit", "x/../x"):
        message = refusal(BASE.replace('"imagenet"', f'"{name}"'))
        assert "dataset.name" in message and "not in the catalog" in message


@pytest.mark.parametrize("family", ["alexnet", "lenet5", "frnn"])
def test_a_family_called_like_an_entry_is_not_that_entry(family):
    experiment = loads(
        f'model.family = "{family}"\ndataset.name = "imagenet"\nmachine.name = "abci"'
    )
    assert "name" not in to_tables(experiment)["model"]
    assert loads(dumps(experiment)) == experiment


def test_a_very_long_dotted_key_is_refused_at_once():
    with pytest.raises(SpecError, match="nested too deeply"):
        loads("a" + ".a" * 400_000 + " = 1")


def test_a_rate_measured_on_more_devices_than_there_are():
    with pytest.raises(SpecError, match=r"calibration.devices = 361: bigbasin has 44 nodes of 8"):
        replay("goyal-2017").experiment.set({"calibration.devices": 361})


def test_a_measured_rate_goes_with_the_device_and_stays_with_more_of_them():
    goyal = replay("goyal-2017").experiment
    assert goyal.set({"machine.devices_per_node": 16}).calibration == goyal.calibration
    assert goyal.set({"machine.device.memory": 1e12}).calibration == goyal.calibration
    assert goyal.set({"machine.device.name": "v100-sxm2-16gb"}).calibration.rate == 0


@pytest.mark.parametrize(
    ("run", "changes"),
    [
        ("gb200-nvl72", {"strategy.nodes": 64}),
        ("gb200-nvl72", {"strategy.nodes": 38}),
        ("h100-pod", {"strategy.pipeline": 6}),
        ("h100-pod", {"strategy.nodes": 6, "strategy.tensor": 8, "strategy.pipeline": 4}),
        ("h100-pod", {"strategy.data": 3, "strategy.tensor": 2}),
    ],
)
def test_nodes_that_fit_no_domain_or_split_are_refused_with_values_that_are_legal(run, changes):
    run = load(f"llama3-8b@{run}").set({"strategy.batch": 64})
    with pytest.raises(SpecError) as error:
        run.set(changes)
    sentence = str(error.value).removesuffix(".").replace(", or 0: as many as there are", "")
    field, _, values = sentence.rpartition(": ")[2].rpartition(" = ")
    field = field.rpartition(" ")[2]
    for value in map(int, values.split(", ")):
        run.set(changes | {field: value})
    with pytest.raises(SpecError):
        run.set(changes | {field: value + 1})
