"""What the engines of version 0.1 said of split networks: cases with their terms, and their experiments."""

import json
from pathlib import Path

from split_runs import split

FROZEN = json.loads((Path(__file__).parents[1] / "data" / "split_steps_0.1.json").read_text())
CASES = FROZEN["cases"]


def run_of(case, jitter=0.0):
    return split(FROZEN["models"][case["model"]], jitter=jitter, **case["strategy"])
