"""A worker ends at once: xdist sends SIGINT to one that is at work 5 s after its last test."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

SAMPLE = """
import gc

kept = []

def look(phase, info):
    if phase == "start" and info["generation"] == 2:
        with open("looked_through", "a") as file:
            print(len(gc.get_objects()), file=file)

def test_that_leaves_much():
    kept.extend([] for _ in range(100_000))
    gc.collect()
    gc.callbacks.append(look)
"""


def test_what_tests_leave_is_not_searched_for_garbage(tmp_path):
    for file in ("conftest.py", "helpers/idle_sleeps.py", "helpers/lanes.py", "helpers/turns.py"):
        shutil.copy(Path(__file__).parent.parent / file, tmp_path)
    (tmp_path / "test_sample.py").write_text(SAMPLE, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir=.", "test_sample.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    looked_through = [int(line) for line in (tmp_path / "looked_through").read_text().splitlines()]
    assert looked_through[-1] < 100_000
