"""A wheel has the package and the course; installed in an empty environment it works in an empty folder."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path
from urllib.request import urlopen

import pytest
from bare_interpreter import linked
from patience import PATIENCE

from lib_dlhpc import __version__
from lib_dlhpc.explore import course, files
from lib_dlhpc.explore.front.page import front_page

BUILD = """
import sys
from setuptools.build_meta import build_sdist, build_wheel
out = sys.argv[1]
build_sdist(out), build_wheel(out)
"""
OFFLINE = ("--no-index", "--no-deps", "--disable-pip-version-check", "--quiet")
BIN = "Scripts" if os.name == "nt" else "bin"
# Written by the build into a source distribution.
OF_THE_BUILD = {"PKG-INFO", "setup.cfg"}


def run(words, cwd, **more):
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tracked(repository):
    """Every file that git tracks or would track, by its path from the top."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = run(listed, repository).split("\0")
    return {name for name in names if name and (repository / name).is_file()}


@pytest.fixture(scope="module")
def made(repository, tracked, tmp_path_factory):
    """The folder of a source distribution and a wheel, of a copy of the repository; a warning would be an error."""
    source, out = (tmp_path_factory.mktemp(name) for name in ("source", "dist"))
    for name in tracked:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(repository / name, source / name)
    run([sys.executable, "-W", "error", "-c", BUILD, out], source)
    return out


def only(folder, pattern):
    (found,) = folder.glob(pattern)
    return found


def names_of(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_source_distribution_is_the_repository(made, tracked):
    with tarfile.open(only(made, "*.tar.gz")) as archive:
        names = {item.name.partition("/")[2] for item in archive if not item.isdir()}
    more = {name for name in names if name.startswith("lib_dlhpc.egg-info/")} | OF_THE_BUILD
    assert names - more == tracked


def test_a_wheel_has_the_package_and_the_course_and_nothing_else(made, tracked, repository):
    wheel = only(made, "*.whl")
    names = {name for name in names_of(wheel) if ".dist-info/" not in name}
    inside = {name for name in names if name.startswith("lib_dlhpc/course/")}
    assert names - inside == {name for name in tracked if name.startswith("lib_dlhpc/")}
    with zipfile.ZipFile(wheel) as archive:
        for name in inside:
            same = repository / name.removeprefix("lib_dlhpc/course/")
            assert archive.read(name) == same.read_bytes()
    notebooks = {module.file for module in course.PATH} | {course.EXPLORER}
    assert {f"lib_dlhpc/course/modules/{name}" for name in notebooks} <= inside
    guide = {name for name in tracked if re.fullmatch(r"docs/(guide/)?[\w]+\.md", name)}
    assert len(guide) > 20 and {f"lib_dlhpc/course/{name}" for name in guide} <= inside
    for part in ("modules", "labs"):
        wanted = {name for name in tracked if name.startswith(f"{part}/")}
        left = wanted - {name.removeprefix("lib_dlhpc/course/") for name in inside}
        assert left <= {"modules/explorer.png", "modules/store.py"}


@pytest.fixture(scope="module")
def metadata(made):
    """The metadata of the wheel."""
    with zipfile.ZipFile(only(made, "*.whl")) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        return message_from_bytes(archive.read(name))


def test_a_wheel_says_what_its_extras_are(metadata):
    assert {"sim", "run", "lab", "cluster", "import", "all"} <= set(
        metadata.get_all("Provides-Extra")
    )
    core = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert {line.partition(">")[0] for line in core} == {"numpy", "shtab", "tomli-w"}


def links(text):
    return re.findall(r"(!?)\[[^]]+\]\(([^)#]+)", text)


def test_a_package_page_has_no_broken_link(metadata, repository, tmp_path):
    assert len(metadata.get_payload()) > 1000
    assert all(place.startswith("https://") for _, place in links(metadata.get_payload()))
    home = "https://git.example/lib_dlhpc"
    words = "import sys; from setuptools import build_meta as b; sys.stderr.write(b.prepare_metadata_for_build_wheel"
    made = [sys.executable, "-c", f"{words}(sys.argv[1]))", tmp_path]
    source = tmp_path / "source"
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        source.mkdir(exist_ok=True)
        shutil.copyfile(repository / name, source / name)
    (source / "lib_dlhpc").symlink_to(repository / "lib_dlhpc")
    run(made, source, PROJECT_HOME=home)
    page = message_from_bytes(only(tmp_path, "*.dist-info/METADATA").read_bytes())
    assert f"Source, {home}" in page.get_all("Project-URL")
    own = [(image, place) for image, place in links(page.get_payload()) if home in place]
    assert own[0] == ("!", f"{home}/raw/v{__version__}/modules/explorer.png")
    for _, place in own:
        assert (repository / place.partition(f"/v{__version__}/")[2]).exists()


def test_a_wheel_of_the_source_distribution_is_the_same(made, tmp_path):
    words = [sys.executable, "-m", "pip", "wheel", *OFFLINE, "--no-build-isolation"]
    run([*words, "-w", tmp_path, only(made, "*.tar.gz")], tmp_path)
    assert names_of(only(tmp_path, "*.whl")) == names_of(only(made, "*.whl"))


@pytest.fixture(scope="module")
def environment(made, tmp_path_factory):
    """An environment with the wheel and nothing else."""
    place = tmp_path_factory.mktemp("environment")
    run([sys.executable, "-m", "venv", "--without-pip", place], place)
    pip = [sys.executable, "-m", "pip", f"--python={place / BIN / 'python'}", "install"]
    run([*pip, *OFFLINE, "--no-compile", only(made, "*.whl")], place)
    return place


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    return linked(tmp_path_factory.mktemp("core") / "packages")


def test_it_predicts_plans_and_copies_the_course(environment, core, tmp_path):
    def dlhpc(*words):
        return run([environment / BIN / "dlhpc", *words], tmp_path, PYTHONPATH=str(core))

    assert "time to train" in dlhpc("predict", "goyal-2017")
    assert "bigbasin" in dlhpc("catalog", "machines")
    dlhpc("explore", "--copy", "mine")
    assert "proved" in dlhpc("plan", "mine/labs/experiments/digits.toml", "--objective", "time")
    copied = {file.relative_to(tmp_path / "mine") for file in (tmp_path / "mine").rglob("*.*")}
    whole = files.folder()
    for part, patterns in files.PARTS.items():
        for pattern in patterns:
            assert {file.relative_to(whole) for file in (whole / part).glob(pattern)} <= copied


def test_the_course_is_served_from_an_empty_folder(environment, tmp_path):
    """The packages of this environment are visible too; the package is the wheel's, as are its pages."""
    packages = {
        "PYTHONPATH": sysconfig.get_path("purelib"),
        "JUPYTER_PATH": str(Path(sys.prefix) / "share" / "jupyter"),
    }
    where = [environment / BIN / "python", "-c", "import lib_dlhpc; print(lib_dlhpc.__file__)"]
    assert Path(run(where, tmp_path, **packages).strip()).is_relative_to(environment)
    server = subprocess.Popen(
        [environment / BIN / "dlhpc", "explore", "--no-browser"],
        cwd=tmp_path,
        env={**os.environ, **packages},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        address = server.stdout.readline().split()[3]
        with urlopen(address, timeout=PATIENCE) as answer:
            sent = answer.read()
        stored = sent.replace(f'content="{address}'.encode(), b'content="')
        assert sent != stored == front_page().read_bytes()
    finally:
        server.terminate()  # its first kernel may still be starting
        server.wait(PATIENCE)
        server.stdout.close()
    assert not list(tmp_path.iterdir())
