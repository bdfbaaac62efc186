"""A site file: legal texts, and shell safety of each."""

import json
import re
import subprocess
import sys
import tomllib
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch import Site, load_site
from lib_dlhpc.launch.site import LAUNCHERS, ROOT, SCHEDULERS, check_word, read_site, site_names
from lib_dlhpc.spec import catalog

HOSTILE = (
    "; touch x",
    "a; touch x",
    "a && touch x",
    "a | touch x",
    "a & touch x",
    "$(touch x)",
    "`touch x`",
    "${IFS}touch",
    "a\ntouch x",
    "a\rtouch x",
    "a\x00b",
    "a'b",
    'a"b',
    "a\\b",
    "a b",
    "a\tb",
    "> x",
    "#SBATCH --wrap=x",
    "~root/x",
    "*",
    "-x",
    "--wrap=x",
    "{a,b}",
    "!!",
    "a\u2028b",
    "Straße",
    "x" * 10_000,
)
TEXTS = ("name", "account", "partition", "python", "scheduler", "launcher")


def values_with(field, text):
    values = {
        "modules": [[text], [f"module load {text}"], [f"module {text}"]],
        "setup": [[text], [f"export A={text}"], [f"export {text}=1"], [f"source {text}"]],
        "extra": [{"qos": text}, {text: "a"}],
    }
    return values.get(field, [text])


@pytest.mark.parametrize("field", [each.name for each in fields(Site)])
def test_no_field_accepts_shell_metacharacters(field):
    hostile = [(text, value) for text in HOSTILE for value in values_with(field, text)]
    for text, value in hostile:
        if text == "a b" and field == "modules" and value != ["module a b"]:
            assert Site(modules=value).lines() == ["module load a b"]  # two modules
            continue
        try:
            site = Site(**{field: value})
        except SpecError as error:
            assert re.search(rf"site\.{field}", str(error)), value
        else:
            pytest.fail(f"{value!r} was accepted: {site}")


@given(st.text())
def test_a_word_that_is_legal_needs_no_quotes(text):
    import shlex

    try:
        check_word(text, "word")
    except SpecError:
        return
    assert shlex.quote(text) == text or text == "?"
    assert shlex.split(text) == [text] and not text.startswith("-")


@pytest.mark.parametrize("value", [3, None, True, ["a"], {"a": 1}])
def test_a_text_is_text(value):
    for field in TEXTS:
        with pytest.raises(SpecError, match=f"site.{field}"):
            Site(**{field: value})
    for field in ("modules", "setup"):
        with pytest.raises(SpecError, match=f"site.{field}"):
            read_site({field: value if value != ["a"] else [1]})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ranks_per_node", 0),
        ("ranks_per_node", 2.5),
        ("ranks_per_node", True),
        ("time_limit", "soon"),
        ("time_limit", 0),
        ("time_limit", "20 years"),
        ("exclusive", "yes"),
        ("extra", "qos"),
        ("extra", {"qos": 3}),
        ("extra", {"wrap": "date"}),
        ("extra", {"Output": "x"}),
        ("modules", "module load gcc"),
        ("no_such", 1),
    ],
)
def test_what_is_wrong_is_named(field, value):
    with pytest.raises(SpecError, match=f"site.{field}"):
        read_site({field: value})


def test_lines_for_the_shell_are_as_they_were_written(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    site = Site(
        modules=["gcc/13.2", "module load a b", "module purge"],
        setup=["export A=1,2", "source ~/venv/bin/activate", "export B="],
    )
    assert site.lines() == [
        "module load gcc/13.2",
        "module load a b",
        "module purge",
        "export A=1,2",
        f"source {tmp_path}/venv/bin/activate",
        "export B=",
    ]


def test_a_path_with_a_blank_from_home_is_quoted(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "a b;touch x"))
    assert Site(setup=["source ~/v"]).lines() == [f"source '{tmp_path}/a b;touch x/v'"]


@pytest.mark.parametrize("name", site_names())
def test_sites_of_the_catalog_cite_the_source_of_each_value(name):
    site, table = load_site(name), tomllib.loads((ROOT / f"{name}.toml").read_text("utf-8"))
    assert site.name == name and site.scheduler in SCHEDULERS and site.launcher in LAUNCHERS
    assert table["title"] and site.time_limit == (None if name == "laptop" else site.time_limit)
    output = set(table) - {"title", "sources", "account", "scheduler"}
    output -= {key for key in output if table[key] == "?"}
    assert output <= set(table["sources"]) and set(table["sources"]) <= set(table)
    assert all(entry["from"] and entry["confidence"] for entry in table["sources"].values())


def test_the_sites_that_are_promised_are_there_and_whom_to_charge_is_asked():
    assert {"stampede3", "frontera", "generic-slurm", "laptop"} <= set(site_names())
    assert set(site_names()) == set(catalog.names("sites"))
    assert load_site("stampede3").missing() == load_site("frontera").missing() == ["account"]
    assert load_site("frontera", account="A").missing() == []


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('account = "A-1"\nmodules = ["gcc"]\n[extra]\nqos = "debug"\n')
    assert load_site(path) == Site(
        name="mine", account="A-1", modules=("gcc",), extra={"qos": "debug"}
    )
    path.write_text('acount = "A"')
    with pytest.raises(SpecError, match=r"mine.toml: site.acount.*Did you mean 'account'"):
        load_site(path)
    path.write_text("account = ")
    with pytest.raises(SpecError, match=r"mine.toml: cannot be read"):
        load_site(path)
    with pytest.raises(SpecError, match=r"no site of that name.*Did you mean 'frontera'"):
        load_site("fronterra")


def test_all_of_it_is_light():
    """PSI/J and MPI are imported only on submission."""
    output = "import json, sys, lib_dlhpc.launch; print(json.dumps(list(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", output], capture_output=True, text=True, check=True)
    assert not {"psij", "mpi4py", "psutil", "simpy"} & set(json.loads(run.stdout))
