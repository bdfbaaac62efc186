"""Laws of the catalog's reader: what is listed can be read, and nothing else is."""

import tomllib

import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.dataset import read_dataset
from lib_dlhpc.spec.experiment import dumps, loads, read_model
from lib_dlhpc.spec.machine import read_device, read_link, read_machine

READERS = {
    "devices": read_device,
    "links": lambda name: read_link(name, "link"),
    "machines": read_machine,
    "models": read_model,
    "datasets": read_dataset,
}
ENTRIES = [(kind, name) for kind in READERS for name in catalog.names(kind)]

OUTSIDE = [
    "../machines/summit",
    "../../catalog/machines/summit",
    "..",
    ".",
    "",
    "/etc/hostname",
    "summit.toml",
    "Summit",
    "summit\n",
    "summit/../summit",
    "summit\\..\\summit",
    "x" * 5000,
]


@pytest.mark.parametrize("kind", READERS)
def test_every_entry_reads_as_its_noun_and_knows_its_name(kind):
    names = catalog.names(kind)
    assert names and [READERS[kind](name).name for name in names] == [*names]


@pytest.mark.parametrize("kind", catalog.KINDS)
def test_a_name_that_is_not_listed_is_never_opened(kind, monkeypatch):
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_, **__: pytest.fail("a file was opened"))
    for name in OUTSIDE:
        with pytest.raises(SpecError, match="not in the catalog"):
            catalog.read(kind, name)


@pytest.mark.parametrize("name", [None, 3, ["summit"], {"name": "summit"}, True])
def test_a_name_is_text(name):
    with pytest.raises(SpecError, match="not in the catalog"):
        catalog.read("machines", name)


def test_a_near_miss_names_the_nearest_and_the_field():
    with pytest.raises(SpecError) as error:
        read_machine({"name": "sumit"})
    assert "machine.name = 'sumit'" in str(error.value)
    assert "Did you mean 'summit'?" in str(error.value)
    for name in catalog.names("machines"):
        assert name in str(error.value)
    with pytest.raises(SpecError, match="Did you mean 'h100-sxm-80gb'"):
        catalog.read("devices", "h100")


def test_an_unknown_kind_is_refused():
    with pytest.raises(SpecError, match="Did you mean 'machines'"):
        catalog.names("machine")


def test_what_is_built_from_an_entry_leaves_the_entry_as_it_was():
    for kind, name in ENTRIES:
        READERS[kind](name)
    run = loads("[model]\nname='resnet50'\n[dataset]\nname='imagenet'\n[machine]\nname='summit'")
    run = run.set({"machine.storage.nvme.bandwidth": 1.0, "machine.device.peak.fp32": 1.0})
    dumps(
        run.set(
            {"model.classes": 3, "dataset.sample_shape": [1], "machine.inter_node.latency": 1.0}
        )
    )
    for kind, name in ENTRIES:
        text = (catalog.ROOT / kind / f"{name}.toml").read_text(encoding="utf-8")
        assert catalog.read(kind, name) == tomllib.loads(text)


def test_the_longest_prefix_is_the_source():
    table = {"sources": {"a": {"from": "one"}, "a.b": {"from": "two"}}}
    assert catalog.source_of(table, "a.b.c") == {"from": "two"}
    assert catalog.source_of(table, "a.bc") == {"from": "one"}
    assert catalog.source_of(table, "ab") == {}
