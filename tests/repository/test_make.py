"""What `make test` runs: everything, or the paths that ARGS names. make only prints its commands here."""

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

PATHS = ["tests/spec", "tests/spec tests/test_cli.py", "tests/test_cli.py::test_version", "modules"]
# Where a link within the repository leads to: no other address, no place on the page itself.
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")
# A word that is an option's value is no path, even where a folder has that name.
OPTIONS = {"": "", "-k allreduce": "allreduce", "-x -k labs": "labs"}

# pytest as make would start it, once a line of words, up to the point where it knows what to run.
PARSE = """
import json, sys, pytest
class Stop:
    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config):
        print(json.dumps([config.args, config.option.keyword]))
        return 0
for line in sys.stdin:
    pytest.main(json.loads(line), plugins=[Stop()])
"""


@pytest.fixture(scope="module")
def runs(repository: Path, require) -> dict[str, tuple[list[str], str]]:
    """Of each ARGS the paths and the keyword with which `make test` runs pytest."""
    require(shutil.which("make"), "no make here")
    every = [*PATHS, *(f"-x -k tests {paths}" for paths in PATHS), *OPTIONS]
    lines = "".join(json.dumps(pytest_words(repository, args)) + "\n" for args in every)
    words = [sys.executable, "-c", PARSE]
    run = subprocess.run(
        words, input=lines, cwd=repository, capture_output=True, text=True, check=True
    )
    told = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("[[")]
    return {
        args: ([os.path.relpath(path, repository) for path in paths], keyword)
        for args, (paths, keyword) in zip(every, told, strict=True)
    }


def pytest_words(repository: Path, args: str) -> list[str]:
    words = ["make", "--no-print-directory", "-n", "test", f"PYTHON={sys.executable}"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    shown = subprocess.run(
        [*words, f"ARGS={args}"],
        cwd=repository,
        env=kept,
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = (line for line in shown.stdout.splitlines() if " -m pytest " in line)
    return shlex.split(line)[3:]


@pytest.mark.parametrize("paths", PATHS)
def test_paths_in_args_are_all_that_runs(runs, paths):
    assert runs[paths] == (paths.split(), "")
    assert runs[f"-x -k tests {paths}"] == (paths.split(), "tests")


@pytest.mark.parametrize("options", OPTIONS)
def test_options_in_args_hold_for_everything(runs, repository, options):
    paths, keyword = runs[options]
    found = [*repository.glob("modules/*.ipynb"), *repository.glob("labs/*/*.ipynb")]
    every = ["tests", *(str(path.relative_to(repository)) for path in found)]
    assert (sorted(paths), keyword) == (sorted(every), OPTIONS[options])


@pytest.fixture(scope="module")
def hand_out(repository: Path, require) -> dict[str, bytes]:
    """What is in the hand-out, by name."""
    require(shutil.which("make") and shutil.which("git"), "no make or git here")
    require((repository / ".git").exists(), "this is no clone")
    return packed_files(repository)


def packed_files(repository: Path, *later: str) -> dict[str, bytes]:
    words = ["make", "student", *(f"LATER={labs}" for labs in later)]
    subprocess.run(words, cwd=repository, capture_output=True, check=True)
    with tarfile.open(repository / "build" / "student.tar.gz") as packed:
        files = [each for each in packed.getmembers() if each.isfile()]
        return {each.name.split("/", 1)[1]: packed.extractfile(each).read() for each in files}


@pytest.fixture(scope="module")
def with_less(repository: Path, hand_out: dict[str, bytes]) -> dict[str, bytes]:
    """What is in a hand-out without two labs to which others link, by name."""
    found = packed_files(repository, "01_data_parallel_step 02_overlap")
    packed_files(repository)
    return found


def test_links_to_a_lab_that_is_given_later_are_words(with_less, hand_out):
    assert not [name for name in with_less if name.startswith(("labs/01", "labs/02"))]
    assert "2 Make it overlap (later)" in _text("labs/README.md", with_less["labs/README.md"])
    lab = "labs/04_pipeline/README.md"
    assert "[lab 1](" in hand_out[lab].decode() and "lab 1 (later)" in with_less[lab].decode()


@pytest.mark.parametrize("which", ["hand_out", "with_less"])
def test_links_of_the_hand_out_lead_to_what_is_in_it(which, request):
    hand_out = request.getfixturevalue(which)
    there = {str(above) for name in hand_out for above in (Path(name), *Path(name).parents)}
    pages = [name for name in hand_out if name.endswith((".md", ".ipynb"))]
    assert "labs/README.md" in pages
    for name in pages:
        for link in LINK.findall(_text(name, hand_out[name])):
            place = os.path.normpath(os.path.join(os.path.dirname(name), link))
            assert place in there, (name, link)


def test_labs_that_are_given_later_are_left_out(repository, hand_out):
    shown = subprocess.run(
        ["make", "--dry-run", "student", "LATER=02_overlap 04_pipeline"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "':(exclude)labs/02_overlap' ':(exclude)labs/04_pipeline'" in shown.stdout
    assert "labs/02_overlap/checks.py" in hand_out


@pytest.mark.parametrize("name", ["02", "labs/02_overlap", "2_overlap"])
def test_a_lab_that_is_not_there_is_not_left_out_in_silence(repository, name):
    given = ["make", "--dry-run", "student", f"LATER=04_pipeline {name}"]
    shown = subprocess.run(given, cwd=repository, capture_output=True, text=True, check=False)
    assert shown.returncode and "git archive" not in shown.stdout
    assert f"there is no lab {name}, only 01_data_parallel_step 02_overlap" in shown.stderr


def test_the_hand_out_has_no_solution_and_no_history(repository, hand_out):
    found = hand_out
    assert {"README.md", "Makefile", "lib_dlhpc/__init__.py"} <= set(found)
    assert any(name.startswith("labs/") and name.endswith(".ipynb") for name in found)
    assert not [
        name for name in found if name.split("/")[0] in ("instructor_notes", "tests", ".git")
    ]
    everything = "\n".join(_text(name, data) for name, data in found.items())
    for file in (repository / "instructor_notes" / "solutions").glob("*.py"):
        text = file.read_text("utf-8")
        functions = (one for one in ast.parse(text).body if isinstance(one, ast.FunctionDef))
        for body in (ast.get_source_segment(text, one) for one in functions):
            assert body and body not in everything, (file.name, body)


def _text(name: str, data: bytes) -> str:
    """Return the text of a file; of a notebook that of its cells."""
    text = data.decode("utf-8", errors="replace")
    if not name.endswith(".ipynb"):
        return text
    return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
