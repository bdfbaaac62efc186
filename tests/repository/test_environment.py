"""One set of versions: pyproject.toml, requirements.lock and environment.yml stay in step."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lib_dlhpc.explore.server.serve import UNWANTED_EXTENSIONS

# What conda itself provides. All else is installed by pip: a name on conda-forge may be another package.
CONDA_ONLY = {"python", "pip"}


@pytest.fixture(scope="module")
def project(repository: Path) -> dict:
    return tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def lock_text(repository: Path) -> str:
    return (repository / "requirements.lock").read_text(encoding="utf-8")


def packages(lock_text: str) -> dict[str, Requirement]:
    """Every locked package by its name; continuation lines (hashes) left out."""
    lines = re.findall(r"^([A-Za-z0-9][^\\\n]*)", lock_text, re.MULTILINE)
    requirements = [Requirement(line) for line in lines]
    assert len({one.name for one in requirements}) == len(requirements)
    return {canonicalize_name(one.name): one for one in requirements}


@pytest.fixture(scope="module")
def lock(lock_text: str) -> dict[str, Requirement]:
    return packages(lock_text)


@pytest.fixture(scope="module")
def conda(repository: Path) -> dict:
    return yaml.safe_load((repository / "environment.yml").read_text(encoding="utf-8"))


def direct(project: dict, *extras: str) -> dict[str, Requirement]:
    """What the core and these extras ask for; an extra may name others as lib-dlhpc[NAME]."""
    found = {canonicalize_name(one.name): one for one in map(Requirement, project["dependencies"])}
    for line in (line for extra in extras for line in project["optional-dependencies"][extra]):
        one = Requirement(line)
        own = one.name == project["name"]
        found |= direct(project, *one.extras) if own else {canonicalize_name(one.name): one}
    return found


def version(locked: Requirement) -> str:
    (specifier,) = locked.specifier
    assert specifier.operator == "==", locked
    return specifier.version


def test_every_direct_dependency_is_locked_within_its_bounds(project, lock):
    for name, wanted in direct(project, "all", "test").items():
        assert name in lock, f"{name} is not in requirements.lock: make lock"
        assert wanted.specifier.contains(version(lock[name])), (wanted, lock[name])
        assert wanted.marker is None or wanted.marker == lock[name].marker


def test_every_locked_package_has_a_hash(lock_text, lock):
    entries = re.split(r"^(?=[A-Za-z0-9])", lock_text, flags=re.MULTILINE)[1:]
    assert len(entries) == len(lock)
    for entry in entries:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry), entry.splitlines()[0]


def test_lock_names_no_place(lock_text):
    """Neither host, address nor folder: the lock installs from whatever index a reader uses."""
    for line in lock_text.splitlines():
        assert not re.search(r"://|^-|^\s+--(?!hash=)|(^|\s)/|file:", line), line


def test_the_lock_of_the_extras_is_one_too(repository, project):
    text = (repository / "requirements-extras.lock").read_text(encoding="utf-8")
    found = packages(text)
    test_every_locked_package_has_a_hash(text, found)
    test_lock_names_no_place(text)
    for name, wanted in direct(project, "all", "import", "slides", "test").items():
        assert wanted.specifier.contains(version(found[name])), (wanted, found[name])


def test_environment_installs_the_packages_of_the_lock(repository, tmp_path, conda, lock):
    """pip's part of environment.yml, read from the folder that conda runs pip in, is what is installed here.

    For Binder that is binder/, which has the same two files (below).
    """
    (pip,) = (part["pip"] for part in conda["dependencies"] if isinstance(part, dict))
    told = tmp_path / "report.json"
    words = [sys.executable, "-m", "pip", "--isolated", "install", "--dry-run", "--no-index"]
    run = subprocess.run(
        [*words, "--report", str(told), *shlex.split(" ".join(pip))],
        cwd=repository,
        capture_output=True,
        text=True,
        env={**os.environ, "PIP_CONFIG_FILE": os.devnull},
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(told.read_text(encoding="utf-8"))["install"] == []  # nothing is missing
    wanted = {one.name for one in lock.values() if one.marker is None or one.marker.evaluate()}
    named = r"^Requirement already satisfied: ([^=]+)==.*from -r requirements.lock"
    assert set(re.findall(named, run.stdout, re.MULTILINE)) == wanted


def test_conda_is_asked_for_python_and_pip_alone(project, conda):
    assert conda["channels"] == ["conda-forge"]
    asked = [part for part in conda["dependencies"] if isinstance(part, str)]
    versions = dict(part.partition("=")[::2] for part in asked)
    assert set(versions) == CONDA_ONLY
    assert Requirement(f"python{project['requires-python']}").specifier.contains(versions["python"])


def test_environment_names_what_it_brings(repository, project):
    text = (repository / "environment.yml").read_text(encoding="utf-8")
    comment = " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    listed = re.search(r"with all that they need: (.*?) for the tests\.", comment)
    assert listed
    names = set(re.findall(r"[a-z][a-z0-9-]*", listed[1].replace("on Windows", "")))
    assert names == set(direct(project, "all"))


@pytest.mark.parametrize("name", ["environment.yml", "requirements.lock"])
def test_binder_has_the_same_files(repository, name):
    """Binder reads only binder/ when it exists; a copy there would drift."""
    binder = repository / "binder" / name
    assert binder.read_bytes() == (repository / name).read_bytes()
    if sys.platform != "win32":
        assert binder.is_symlink()


def test_binder_leaves_out_the_extensions_that_throw_on_a_page(repository):
    settings = json.loads((repository / "binder" / "voila.json").read_text(encoding="utf-8"))
    assert settings["VoilaConfiguration"]["extension_denylist"] == UNWANTED_EXTENSIONS


def test_binder_accepts_the_repository(repository, require):
    program = Path(sys.executable).parent / "jupyter-repo2docker"
    require(program.exists(), "jupyter-repo2docker is not installed")
    run = subprocess.run(
        [program, "--no-build", "--debug", "."], cwd=repository, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    told = run.stdout + run.stderr
    assert "conda environment for python=3.12" in told
    # The lock is there when conda installs the environment, and the package itself comes after it.
    steps = ["COPY --chown=0:0 src/ ", '--file "binder/environment.yml"', "RUN ./binder/postBuild"]
    assert [told.count(step) for step in steps] == [1, 1, 1]
    assert sorted(steps, key=told.index) == steps
