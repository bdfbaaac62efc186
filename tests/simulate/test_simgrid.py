"""Message programs played here and by SimGrid 3.32 (CM02): golden.json beside make_golden.py.

Both are fluid models with max-min fairness and senders that wait for their receivers, so they agree to
SimGrid's own precision. They would part where SimGrid does what is not done here: it weighs flows on a
shared link by 1 / latency (here all flows that can meet have one latency), and its LV08 and SMPI models
scale latency and bandwidth by factors measured on a TCP cluster (CM02 has none).
"""

import json
import runpy
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from lib_dlhpc.schedules import Schedule, messages
from lib_dlhpc.simulate.events import finish_times
from lib_dlhpc.spec.machine import Device, Link, Machine

HERE = Path(__file__).resolve().parents[1] / "data" / "simgrid"
SCRIPT = runpy.run_path(str(HERE / "make_golden.py"))
CASES, ALPHA, BANDWIDTH = SCRIPT["CASES"], SCRIPT["ALPHA"], SCRIPT["BANDWIDTH"]
GOLDEN = json.loads((HERE / "golden.json").read_text())
UNCONTENDED = [name for name in CASES if name.rsplit(" ", 1)[0] in ("ring", "recursive doubling")]
LIVE = ["ring 4", "recursive doubling 16", "incast 8 to 1", "everyone 8", "fat tree staggered 16"]


def machine_of(case):
    device = Device({"fp32": 1e13}, 1e10, 1e12, 100.0, 300.0)
    tree = {key: case[key] for key in ("nodes_per_switch", "oversubscription") if key in case}
    return Machine(
        device,
        intra_node=Link(ALPHA, 8 * BANDWIDTH),
        inter_node=Link(ALPHA, BANDWIDTH),
        nodes=case["nodes"],
        devices_per_node=case["node_size"],
        topology="fat-tree" if tree else "single-switch",
        **tree,
    )


def played(name, **options):
    case = CASES[name]
    ranks = case["nodes"] * case["node_size"]

    def rounds():
        for sent in case["rounds"]:
            source, target, size = zip(*sent, strict=True)
            yield messages(source, target, 0, [round(b) for b in size], False)

    schedule = Schedule(name, ranks, 0, rounds)
    return finish_times(
        schedule, machine_of(case), case["nodes"], case["node_size"], element_bytes=1, **options
    )


@pytest.mark.parametrize("name", [name for name in CASES if name not in UNCONTENDED])
def test_with_contention_every_rank_ends_when_simgrid_says(name):
    np.testing.assert_allclose(played(name), GOLDEN[name], rtol=1e-6)


@pytest.mark.parametrize("name", UNCONTENDED)
def test_without_contention_every_rank_ends_when_simgrid_says(name):
    np.testing.assert_allclose(played(name), GOLDEN[name], rtol=1e-6)


def test_the_golden_figures_are_of_all_cases():
    assert list(GOLDEN) == list(CASES)


def test_contention_is_what_makes_an_incast_eight_times_as_long():
    alone = max(played("incast 8 to 1", sharing=False)) - ALPHA
    assert max(GOLDEN["incast 8 to 1"]) - ALPHA == pytest.approx(8 * alone, rel=1e-6)
    assert max(played("incast 8 to 1")) - ALPHA == pytest.approx(8 * alone, rel=1e-9)


def test_a_ring_beats_everyone_to_everyone_where_the_latter_meets_at_one_rank():
    assert max(GOLDEN["ring 16"]) < max(GOLDEN["everyone 16"])
    assert max(played("ring 16")) < max(played("everyone 16"))


@pytest.mark.parametrize("name", LIVE)
def test_simgrid_still_says_what_it_said(name, require):
    python = shutil.which("python3", path="/usr/bin")
    found = python and subprocess.run([python, "-c", "import simgrid"], capture_output=True)
    require(found and found.returncode == 0, "no python3-simgrid")
    done = subprocess.run(
        [python, HERE / "make_golden.py", name], capture_output=True, check=True, timeout=120
    )
    live = json.loads(done.stdout)
    np.testing.assert_allclose(live, GOLDEN[name], rtol=1e-9)
    np.testing.assert_allclose(played(name), live, rtol=1e-6)
