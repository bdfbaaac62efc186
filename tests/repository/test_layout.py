"""The house is in order: rooms where a reader looks for them, one style, files of readable size."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP_LEVEL = [
    *["modules", "labs", "lib_dlhpc", "binder", "instructor_notes", "tests"],
    *["environment.yml", "requirements.lock", "pyproject.toml", "Makefile"],
    *["README.md", "LICENSE", "CITATION.cff", "CHANGELOG.md", "CONTRIBUTING.md"],
]
LONGEST_CELL = 15  # lines that are not blank
LONGEST_FILE = 500  # lines
# Pages and installations must work where these cannot be reached.
HOSTS = re.compile(r"//cdn\.|//[\w.]*(?:unpkg|esm)\.|//registry\.|(?:extra-)?index[-]url", re.I)


@pytest.fixture(scope="module")
def tracked(repository: Path) -> list[Path]:
    """Every file that git tracks or would track, as it is on disk."""
    run = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    files = [repository / name for name in run.stdout.split("\0") if name]
    return [file for file in files if file.is_file()]


@pytest.mark.parametrize("name", TOP_LEVEL)
def test_top_level_has(repository, name):
    assert (repository / name).exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"], ["lint-imports"]],
    ids=" ".join,
)
def test_lint_is_clean(repository, command):
    program = Path(sys.executable).parent / command[0]
    run = subprocess.run([program, *command[1:]], cwd=repository, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_no_notebook_cell_hides_logic(repository, tracked):
    """Logic belongs in the package; a cell is short enough to read aloud."""
    long = []
    for file in tracked:
        if file.suffix == ".ipynb":
            cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
            for number, cell in enumerate(cells):
                lines = [line for line in "".join(cell["source"]).splitlines() if line.strip()]
                if cell["cell_type"] == "code" and len(lines) > LONGEST_CELL:
                    long.append(f"{file.relative_to(repository)} cell {number}: {len(lines)} lines")
    assert not long


def test_no_file_of_the_package_is_too_long(repository, tracked):
    package = repository / "lib_dlhpc"
    lengths = {
        str(file.relative_to(repository)): len(file.read_text(encoding="utf-8").splitlines())
        for file in tracked
        if file.suffix == ".py" and file.is_relative_to(package)
    }
    assert lengths
    assert not {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE}


def test_no_file_needs_a_host(repository, tracked):
    found = []
    for file in tracked:
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{file.relative_to(repository)}: {host}" for host in HOSTS.findall(text)]
    assert not found


@pytest.mark.parametrize("host", ["cdn.example", "unpkg.com", "www.esm.sh", "registry.example"])
def test_a_host_would_be_found(host):
    assert HOSTS.search("https:" + "//" + host)


def test_ten_files_that_explain_a_step_are_an_evening(repository):
    text = (repository / "CONTRIBUTING.md").read_text()
    listed = re.findall(r"^\d+\. `(lib_dlhpc/\S+\.py)`:", text, re.MULTILINE)
    assert len(listed) == 10
    assert sum(len((repository / name).read_text().splitlines()) for name in listed) < 2500
