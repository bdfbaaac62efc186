"""With DLHPC_REQUIRE_ALL=1 no test can leave by the side door."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SKIPS = """
import pytest

def test_missing(require):
    require(None, "no such component")

def test_skip():
    pytest.skip("not today")

@pytest.mark.skipif(True, reason="never")
def test_mark():
    pass

@pytest.mark.xfail(strict=True)
def test_known():
    raise ValueError

def test_fine(require):
    require("present", "unused")
"""
WHOLE_FILE = 'import pytest\npytest.skip("the whole file", allow_module_level=True)\n'


def outcomes(folder: Path, test: str, require_all: str) -> dict[str, int]:
    """Run one test file beside this suite's conftest; count what pytest's last line says."""
    for file in ("conftest.py", "helpers/idle_sleeps.py", "helpers/lanes.py", "helpers/turns.py"):
        shutil.copy(Path(__file__).parent.parent / file, folder)
    (folder / "test_sample.py").write_text(test, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir=.", "test_sample.py"],
        cwd=folder,
        env=os.environ
        | {"DLHPC_REQUIRE_ALL": require_all, "PYTEST_ADDOPTS": ""}
        | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    last = run.stdout.splitlines()[-1]
    return {word: int(count) for count, word in re.findall(r"(\d+) ([a-z]+?)s?\b(?!\.)", last)}


def test_skips_stay_skips_on_a_laptop(tmp_path):
    assert outcomes(tmp_path, SKIPS, "0") == {"passed": 1, "skipped": 3, "xfailed": 1}


def test_every_skip_fails_when_all_is_required(tmp_path):
    # A mark skips before the test starts, so pytest calls its failure an error.
    assert outcomes(tmp_path, SKIPS, "1") == {"passed": 1, "failed": 2, "error": 1, "xfailed": 1}


@pytest.mark.parametrize(("require_all", "outcome"), [("0", "skipped"), ("1", "error")])
def test_a_whole_file_cannot_slip_away(tmp_path, require_all, outcome):
    assert outcomes(tmp_path, WHOLE_FILE, require_all)[outcome] == 1
