"""Checks of lab 1 in PyTorch: the laws of checks.py, for steps on processes of torch.distributed.

In a terminal:     python torch_checks.py torch_step.py "your name" [FOLDER]

FOLDER: for traces of torch.profiler, by_hand and ddp, one file a rank; see README.md.
"""

from dataclasses import replace
from pathlib import Path

from checks import RANKS, findings, tasks

from lib_dlhpc.labs.findings import passed
from lib_dlhpc.labs.program import arguments, end_together, end_with, existing
from lib_dlhpc.labs.torch_ranks.runs import data_parallel, titled, trace_steps
from lib_dlhpc.labs.torch_ranks.world import World

STEPS = 12  # that are traced


def torch_findings(world, file, name, step="step", ddp_step="ddp_step"):
    """Return what holds for the two functions of a file, given by their names."""
    by_hand = findings(step, name, data_parallel(world, file))
    wrapped = findings(ddp_step, name, data_parallel(world, file, ddp=True))
    return [*titled("By hand", by_hand), *titled("DDP", wrapped)]


def write_traces(world, file, name, folder):
    """Write traces of both functions on even shards."""
    task = replace(tasks(name)["Even shards"], steps=STEPS)
    trace_steps(world, file, "step", task, False, folder / "by_hand")
    trace_steps(world, file, "ddp_step", task, True, folder / "ddp")


def main():
    """Check a file with `step` and `ddp_step`."""
    file, name, *folder = arguments("torch_step.py", '"your name"', "FOLDER", optional=1)
    with World(RANKS) as world:
        result = torch_findings(world, existing(file), name)
        for each in folder if passed(result) else ():
            write_traces(world, file, name, Path(each))
    end_with(result, "PyTorch")


if __name__ == "__main__":
    end_together(main)
