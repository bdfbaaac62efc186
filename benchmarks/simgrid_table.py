"""The event simulator against SimGrid 3.32 (S4U, CM02), case by case: finish time of the last rank.

    python benchmarks/simgrid_table.py                      SimGrid's figures as kept in tests/data/simgrid
    python benchmarks/simgrid_table.py --live               run SimGrid again, in Debian's python3-simgrid
    python benchmarks/simgrid_table.py "incast 8 to 1"      only the cases whose names begin so

`difference` is of the end, `worst rank` the largest difference of any rank's own end. `no contention` is
what the same program takes here when every flow has its links to itself: what is left out of a closed form.
tests/simulation/test_simgrid.py holds all ranks of all cases to 1e-6, and notes where the two models differ.
"""

import argparse
import json
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.schedules import Round, Schedule, messages
from lib_dlhpc.simulation.events import finish_times
from lib_dlhpc.spec.machine import Device, Link, Machine

DATA = Path(__file__).resolve().parents[1] / "tests" / "data" / "simgrid"
SCRIPT = runpy.run_path(str(DATA / "make_golden.py"))
CASES, ALPHA, BANDWIDTH, NETWORK = (
    SCRIPT[name] for name in ("CASES", "ALPHA", "BANDWIDTH", "NETWORK")
)
GOLDEN = json.loads((DATA / "golden.json").read_text())
# That of the system: Debian's package is made for it.
PYTHON = shutil.which("python3", path="/usr/bin")
MOST = 0.05  # wanted with contention
RING, EVERYONE = "ring 16", "everyone 16"


def machine_of(case: dict[str, Any]) -> Machine:
    """Return a case's platform as a machine: a NIC a node, inside a node links 8 times as fast."""
    device = Device({"fp32": 1e13}, 1e10, 1e12, 100.0, 300.0)
    network = {key: case[key] for key in NETWORK if key in case}
    if case.get("topology", "").startswith("rails"):
        network["nics"] = case["node_size"]  # each as fast as the one NIC of other cases
    return Machine(
        device,
        intra_node=Link(ALPHA, 8 * BANDWIDTH),
        inter_node=Link(ALPHA, BANDWIDTH),
        nodes=case["nodes"],
        devices_per_node=case["node_size"],
        **network,
    )


def simulated(name: str, **options: Any) -> NDArray[np.float64]:
    """Return each rank's finish time in a case here, in s, shape (ranks,)."""
    case = CASES[name]
    ranks = case["nodes"] * case["node_size"]

    def rounds() -> Iterator[Round]:
        for sent in case["rounds"]:
            source, target, size = zip(*sent, strict=True)
            yield messages(source, target, 0, [round(b) for b in size], False)

    program = Schedule(name, ranks, 0, rounds)
    sizes = (machine_of(case), case["nodes"], case["node_size"])
    return finish_times(program, *sizes, element_bytes=1, **options)


def live(name: str) -> list[float]:
    """Return each rank's finish time in a new SimGrid run."""
    command = [str(PYTHON), str(DATA / "make_golden.py"), name]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def installed() -> bool:
    """Whether the system's Python has SimGrid."""
    asked = [str(PYTHON), "-c", "import simgrid"]
    return PYTHON is not None and subprocess.run(asked, capture_output=True).returncode == 0


def main() -> None:
    """Print the table; end with status 1 if a difference is too large."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=[""])
    parser.add_argument("--live", action="store_true", help="run SimGrid again")
    parser.add_argument("--quick", action="store_true", help="the first three cases only")
    asked = parser.parse_args()
    if asked.live and not installed():
        sys.exit("SimGrid is not installed: apt install python3-simgrid.")
    names = [name for name in CASES if name.startswith(tuple(asked.cases))]
    if asked.quick:
        names = names[:3]
    if not names:
        sys.exit(f"No case begins so; there are: {', '.join(CASES)}.")
    print(f"{'ms':<34}{'here':>12}{'SimGrid':>12}{'difference':>12}{'worst rank':>12}", end="")
    print(f"{'no contention':>15}")
    ends, most = {}, 0.0
    for name in names:
        ours, theirs = simulated(name), np.array(live(name) if asked.live else GOLDEN[name])
        ends[name] = ours.max(), theirs.max()
        each = np.abs(ours - theirs) / np.maximum(theirs, ALPHA)
        most = max(most, float(each.max()))
        alone = simulated(name, sharing=False).max()
        print(f"{name:<34}{ours.max() * 1e3:12.6f}{theirs.max() * 1e3:12.6f}", end="")
        print(f"{ours.max() / theirs.max() - 1:+12.1e}{each.max():12.1e}{alone * 1e3:15.6f}")
    if RING in ends and EVERYONE in ends:
        here, there = (ends[EVERYONE][i] / ends[RING][i] for i in (0, 1))
        print(
            f"everyone to everyone takes {here:.3f} times a ring of 16 here, {there:.3f} in SimGrid"
        )
    print(
        f"largest difference of any rank {most:.1e} (wanted: {MOST:g} with contention, 1e-6 without)"
    )
    sys.exit(most > MOST and not asked.quick)


if __name__ == "__main__":
    main()
