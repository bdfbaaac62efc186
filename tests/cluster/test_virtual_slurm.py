"""The tests' own Slurm: two run side by side, and neither leaves anything behind, however its owner ends."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

PATIENCE = 180  # s; all of it is taken on a very busy machine only
PROGRAM = Path(__file__).with_name("virtual_slurm.py")


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_nothing_is_left_of_a_slurm_whose_tests_are_gone(tmp_path, slurm, how):
    """A second one beside the first, with a job in it, whose owner ends well or is killed."""
    folder = tmp_path.parent / f"s-{how}"
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(PROGRAM), str(folder), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    conf = json.loads(owner.stdout.readline())
    assert conf != slurm
    job = subprocess.run(
        ["sbatch", "-o", "/dev/null", "--wrap", "sleep 12345"],
        env={**os.environ, **conf},
        check=True,
        capture_output=True,
        timeout=PATIENCE,
    )
    end = time.monotonic() + PATIENCE
    (keeper,) = psutil.Process(owner.pid).children()
    while not (sleeping := asleep(keeper)) and time.monotonic() < end:
        time.sleep(0.05)
    family = [keeper, *keeper.children(recursive=True)]
    assert sleeping and len(family) > 7, job
    if how == "killed":
        owner.kill()
    owner.communicate(timeout=PATIENCE)
    _, alive = psutil.wait_procs(family, timeout=PATIENCE)
    assert not alive and not folder.exists()


def test_no_connection_is_given_a_port_of_its_daemons(slurm):
    """Not even while they start."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = [int(port) for port in re.findall(r"Port=(\d+)", Path(slurm["SLURM_CONF"]).read_text())]
    assert len({*ports}) == 5 and max(ports) < first


def asleep(keeper):
    found = []
    for process in keeper.children(recursive=True):
        try:
            found += [process] if "12345" in process.cmdline() else []
        except psutil.Error:  # it ends meanwhile
            continue
    return found


OWNER = """
import subprocess, sys
keeper = subprocess.Popen(
    [sys.executable, sys.argv[1], sys.argv[2]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)
print(keeper.stdout.readline(), end="", flush=True)
sys.stdin.read()
keeper.stdin.close()
keeper.wait()
"""
