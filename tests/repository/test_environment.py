"""One set of versions: pyproject.toml, requirements.lock and environment.yml stay in step."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lib_dlhpc.explore.serve import UNWANTED_EXTENSIONS

# What conda provides itself, and what may not be on conda-forge: an MPI library, the way to batch systems.
CONDA_ONLY = {"python", "pip", "setuptools"}
WHEEL_ONLY = {"impi-rt", "psij-python"}
# The wheel of an MPI library and its conda package are released apart: the same series is enough.
SAME_SERIES = {"mpich"}


@pytest.fixture(scope="module")
def project(repository: Path) -> dict:
    return tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def lock_text(repository: Path) -> str:
    return (repository / "requirements.lock").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def lock(lock_text: str) -> dict[str, Requirement]:
    """Every locked package by its name; continuation lines (hashes) left out."""
    lines = re.findall(r"^([A-Za-z0-9][^\\\n]*)", lock_text, re.MULTILINE)
    requirements = [Requirement(line) for line in lines]
    assert len({one.name for one in requirements}) == len(requirements)
    return {canonicalize_name(one.name): one for one in requirements}


@pytest.fixture(scope="module")
def conda(repository: Path) -> dict[str, str]:
    """Every package of environment.yml with its version; a `pip:` section would fail here."""
    environment = yaml.safe_load((repository / "environment.yml").read_text(encoding="utf-8"))
    assert environment["channels"] == ["conda-forge"]
    parts = (re.split(r"([<>=]+)", line, maxsplit=1) for line in environment["dependencies"])
    return {name: "".join(version).removeprefix("=") for name, *version in parts}


def direct(project: dict, *extras: str) -> dict[str, Requirement]:
    lines = [*project["dependencies"]]
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    return {canonicalize_name(one.name): one for one in map(Requirement, lines)}


def version(locked: Requirement) -> str:
    (specifier,) = locked.specifier
    assert specifier.operator == "==", locked
    return specifier.version


def test_every_direct_dependency_is_locked_within_its_bounds(
    project: dict, lock: dict[str, Requirement]
) -> None:
    for name, wanted in direct(project, "test").items():
        assert name in lock, f"{name} is not in requirements.lock: make lock"
        assert wanted.specifier.contains(version(lock[name])), (wanted, lock[name])
        assert wanted.marker is None or wanted.marker == lock[name].marker


def test_every_locked_package_has_a_hash(lock_text: str, lock: dict[str, Requirement]) -> None:
    entries = re.split(r"^(?=[A-Za-z0-9])", lock_text, flags=re.MULTILINE)[1:]
    assert len(entries) == len(lock)
    for entry in entries:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry), entry.splitlines()[0]


def test_lock_names_no_place(lock_text: str) -> None:
    """Neither host, address nor folder: the lock installs from whatever index a reader uses."""
    for line in lock_text.splitlines():
        assert not re.search(r"://|^-|^\s+--(?!hash=)|(^|\s)/|file:", line), line


def test_environment_has_the_versions_of_the_lock(
    conda: dict[str, str], lock: dict[str, Requirement]
) -> None:
    for name, pinned in conda.items():
        if name in CONDA_ONLY:
            continue
        locked = version(lock[name])
        assert locked == pinned or (name in SAME_SERIES and locked.startswith(pinned + ".")), name


def test_environment_has_all_direct_dependencies_and_no_extra(
    project: dict, conda: dict[str, str]
) -> None:
    wanted = set(direct(project)) - WHEEL_ONLY | {"nbval"}
    assert set(conda) - CONDA_ONLY == wanted


def test_environment_python_is_supported(project: dict, conda: dict[str, str]) -> None:
    assert Requirement(f"python{project['requires-python']}").specifier.contains(conda["python"])


def test_binder_has_the_same_environment(repository: Path) -> None:
    """Binder reads only binder/ when it exists; a copy there would drift."""
    binder = repository / "binder" / "environment.yml"
    assert binder.read_bytes() == (repository / "environment.yml").read_bytes()
    if sys.platform != "win32":
        assert binder.is_symlink()


def test_binder_leaves_out_the_extensions_that_throw_on_a_page(repository: Path) -> None:
    settings = json.loads((repository / "binder" / "voila.json").read_text(encoding="utf-8"))
    assert settings["VoilaConfiguration"]["extension_denylist"] == UNWANTED_EXTENSIONS


def test_binder_accepts_the_repository(
    repository: Path, require: Callable[[object, str], None]
) -> None:
    program = Path(sys.executable).parent / "jupyter-repo2docker"
    require(program.exists(), "jupyter-repo2docker is not installed")
    run = subprocess.run(
        [program, "--no-build", "--debug", "."], cwd=repository, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert "conda environment for python=3.12" in run.stdout + run.stderr
    assert "./binder/postBuild" in run.stdout + run.stderr
