"""Soak test of a class: learners answer at home while the server of their class is killed and started again.

    python tests/soak/class_soak.py            20 learners at home, 8 on the pages, 40 answers each, 4 kills; minutes
    python tests/soak/class_soak.py --clients 4 --visitors 1 --answers 8 --kills 1     a look

Learners at home send over HTTP, those on the pages speak to their kernels over WebSockets.
Prints what was answered, what arrived, what the board shows, and memory. Exits with 1 if anything was lost or doubled.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))
from class_room import soaked


def main() -> int:
    parser = argparse.ArgumentParser(description="Soak test of a class.")
    parser.add_argument("--clients", type=int, default=20, help="learners at home")
    parser.add_argument("--visitors", type=int, default=8, help="learners on the pages")
    parser.add_argument("--answers", type=int, default=40, help="of each learner")
    parser.add_argument("--pause", type=float, default=1.0, help="s between answers, on average")
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--life", type=float, default=15.0, help="s from a start to the next kill")
    given = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dlhpc-class-") as work:
        lives = [given.life] * given.kills
        found = soaked(Path(work), given.clients, given.answers, given.pause, lives, given.visitors)
    answered, arrived = ({e.id: e for e in some} for some in (found.answered, found.arrived))
    firsts = len({(e.learner, e.question) for e in found.answered if e.question})
    known = {(entry.learner, entry.answer) for entry in found.arrived}
    rows = [
        ("answers acknowledged on pages", len(found.acknowledged), given.visitors * given.answers),
        ("of them lost", sum(each not in known for each in found.acknowledged), 0),
        ("entries that arrived", len(found.arrived), len(found.answered)),
        ("lost or changed", sum(arrived.get(i) != e for i, e in answered.items()), 0),
        ("learners' first answers on the board", sum(found.shown.values()), firsts),
    ]
    for what, value, expected in rows:
        print(f"{what:<40} {value:>8,}   expected {expected:,}")
    print(f"{'kills':<40} {found.restarts:>8}")
    print(f"{'sends and pages that were repeated':<40} {found.refused:>8}")
    print(f"{'slowest acknowledged send':<40} {found.slowest:>8.2f} s")
    print(f"{'memory of the server':<40} {found.memory / 1e6:>8.0f} MB")
    print(f"{'in all':<40} {time.monotonic() - start:>8.0f} s")
    return int(any(value != expected for _, value, expected in rows))


if __name__ == "__main__":
    sys.exit(main())
