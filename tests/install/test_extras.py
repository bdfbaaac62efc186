"""The core needs numpy and tomli-w; what an extra brings is named, with the command, where it is missing."""

import re
import sys
import tomllib
from pathlib import Path

import pytest
from bare_interpreter import bare, commands, linked

from lib_dlhpc import extras
from lib_dlhpc.extras import EXTRA, installer, missing
from lib_dlhpc.timeline import from_rows
from lib_dlhpc.timeline.formats import write

ROWS = [(0, "compute", "region", "step", 0.0, 2.0), (1, "compute", "region", "step", 0.0, 2.5)]
WORK = {
    "predict goyal-2017": "time to train",
    "predict goyal-2017 --explain": "Williams",
    "plan digits.toml --objective time": "proved",
    "validate goyal17": "goyal17-r50-1h",
    "catalog machines": "bigbasin",
    "trace show trace.npz": "compute",
    "import machine nccl.log inter_node=osu.txt --base h100-pod --out my.toml -q": "intra_node.bandwidth",
    "predict digits.toml --machine my.toml": "90% bands",
    "doctor --for core": "All of what --for core needs works here.",
}
REFUSE = {
    "simulate goyal-2017": "sim",
    "trace export goyal-2017 traces": "sim",
    "run digits.toml -n 2": "run",
    "compare digits.toml -n 2": "run",
    "couple coupled.toml": "run",
    "store ls packed": "run",
    "snapshots log runs": "run",
    "submit digits.toml --to local -n 2": "run",
    "submit digits.toml --to slurm -n 2": "cluster",  # which has all of run
    "calibrate --device cpu": "torch",
    "import model network.onnx": "import",
    "explore": "lab",
}
# Imported by name with a message of its own, and nothing else.
OPTIONAL = {"google", "otf2", "_otf2"}
CORE = {"lib_dlhpc", "numpy", "tomli_w", "shtab"}
IMPORT = re.compile(r"^\s*(?:import (\w+)|from (\w+)[\w.]* import)\b", re.MULTILINE)


@pytest.fixture(scope="module")
def core(tmp_path_factory) -> Path:
    return linked(tmp_path_factory.mktemp("core") / "packages")


@pytest.fixture(scope="module")
def folder(repository, tmp_path_factory) -> Path:
    """Files that the commands read."""
    folder = tmp_path_factory.mktemp("work")
    write(from_rows(ROWS, 2, "measured"), folder / "trace.npz")
    for file in ("digits.toml", "coupled.toml"):
        (folder / file).write_bytes((repository / "labs" / "experiments" / file).read_bytes())
    for file, output in {"nccl.log": "nccl_h100.log", "osu.txt": "osu_latency.txt"}.items():
        text = (repository / "tests" / "data" / "measurements" / output).read_bytes()
        (folder / file).write_bytes(text)
    return folder


@pytest.fixture(scope="module")
def said(core, repository, folder):
    """What each command says with the core alone."""
    return commands([*WORK, *REFUSE, "doctor"], repository, core, cwd=folder)


def test_what_pip_left_out_of_the_core_is_a_sentence_too(repository, folder, tmp_path):
    """As after `pip install --no-deps` into an environment with numpy alone."""
    lines = {
        "plan digits.toml --objective time": "tomli_w",
        "import machine nccl.log --base h100-pod -q": "tomli_w",
        "completion bash": "shtab",
        "predict goyal-2017": "",
    }
    numpy = linked(tmp_path / "packages", ("numpy",))
    for line, (status, out, err) in commands([*lines], repository, numpy, cwd=folder).items():
        if not lines[line]:
            assert status == 0 and "time to train" in out
            continue
        package = extras.CORE[lines[line]]
        sentence = f"{lines[line]} is not installed; `pip install {package}` installs it."
        assert (status, out, err) == (2, "", f"dlhpc: {sentence}\n")
    (said,) = commands(["predict goyal-2017"], repository, cwd=folder).values()
    assert said == [2, "", "dlhpc: numpy is not installed; `pip install numpy` installs it.\n"]


@pytest.mark.parametrize("line", WORK)
def test_the_core_needs_numpy_and_tomli_w_alone(said, line):
    status, out, err = said[line]
    assert (status, err) == (0, "")
    assert WORK[line] in out


@pytest.mark.parametrize("line", REFUSE)
def test_a_missing_extra_is_a_sentence_with_the_command(said, line):
    status, out, err = said[line]
    assert (status, out) == (2, "")
    assert re.fullmatch(r"dlhpc: \w+ is not installed; `(.+)` installs it\.\n", err)
    assert installer(REFUSE[line]) in err


def test_the_doctor_names_all_extras_that_the_course_lacks(said):
    status, out, err = said["doctor"]
    assert (status, err) == (1, "")
    for extra in ("sim", "run", "lab"):
        assert re.search(
            rf"MISSING +packages of \[{extra}\] .*`{re.escape(installer(extra))}`", out
        )


@pytest.mark.parametrize(
    ("line", "module"),
    [
        ("from lib_dlhpc import simulate", "simpy"),
        ("from lib_dlhpc.simulation import simulate", "simpy"),
        ("from lib_dlhpc.storage import open_store", "xxhash"),
        ("from lib_dlhpc.results.charts import lines", "altair"),
    ],
)
def test_so_it_is_from_python(core, repository, tmp_path, line, module):
    caught = f"try: {line}\nexcept ModuleNotFoundError as error: print(error)"
    assert bare(["-c", caught], repository, core, cwd=tmp_path).strip() == missing(module)


def test_other_packages_may_look_for_what_is_not_there(core, repository, tmp_path):
    look = "import lib_dlhpc, importlib.util as util; print(util.find_spec('simpy'))"
    assert bare(["-c", look], repository, core, cwd=tmp_path) == "None\n"


def test_every_import_is_of_the_core_or_has_an_extra(repository):
    found = set()
    for file in (repository / "lib_dlhpc").rglob("*.py"):
        found |= {one or other for one, other in IMPORT.findall(file.read_text("utf-8"))}
    assert found - CORE - OPTIONAL - set(sys.stdlib_module_names) == set(EXTRA)


def test_every_extra_that_is_named_is_there(repository):
    project = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]
    assert set(EXTRA.values()) <= set(project["optional-dependencies"])
    needed = {line.partition(">")[0] for line in project["dependencies"]}
    assert set(extras.CORE.values()) == needed and set(extras.CORE) == CORE - {"lib_dlhpc"}
