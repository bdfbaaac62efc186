"""Checks of lab 8: do the formulas hold, is the way to save near the best, and does a run survive being killed?

In the notebook:   task(NAME), ways(NAME), check_formulas(expected_time, best_interval, NAME),
                   check_choice(choice, NAME), check_restarts(save, resume, NAME), hand_in(NAME, all five)
In a terminal:     python checks.py step.py "your name"              all ten
                   python checks.py step.py "your name" FOLDER       saving in FOLDER, on whatever file system
"""

import tempfile
from functools import partial
from pathlib import Path

from lib_dlhpc.costs.checkpoints import saving
from lib_dlhpc.explore.labs.lab import save as save_cells
from lib_dlhpc.explore.labs.lab import save_and_check, say, show
from lib_dlhpc.labs.findings import broken, later, passed, seed_of
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.labs.program import Unusable, arguments, end_together, end_with, handed_in
from lib_dlhpc.labs.survive.checkpoint_interval import (
    DAYS,
    HOUR,
    MARGIN,
    WAYS,
    best,
    choice_findings,
    experiment_of,
    formula_findings,
    goodput_of,
    limit,
    mtbf_of,
    task_of,
)
from lib_dlhpc.labs.survive.killed_runs import available, run_with_kills
from lib_dlhpc.labs.survive.save_and_resume import (
    LAWS,
    restart_findings,
    restarts_of,
    restarts_text,
)
from lib_dlhpc.spec.units import format_quantity as show_quantity

HERE = Path(__file__).parent
NAMES = ("expected_time", "best_interval", "choice", "save", "resume")
EVERY = (("every minute", 60), ("every 20 minutes", 1200), ("every 8 hours", 28800))


def own_of(name):
    """Return the learner's own machine and run."""
    return task_of(seed_of(name))


def task(name):
    """Return the learner's task in words."""
    own = own_of(name)
    size = float(saving(experiment_of(own)).size)
    return say(
        f"Machine: {own.nodes} nodes; each node fails every {own.node_mtbf / HOUR:.0f} hours, on average; a restart"
        f" takes {own.restart:.0f} s.\n"
        f"State: {show_quantity(size, 'B')}. The shared file system takes {show_quantity(own.shared, 'B/s')}, the disk"
        f" of a node {show_quantity(own.local, 'B/s')}.\n"
        f"Run: {DAYS} days of training.\n"
        f"Limits: the run may write {show_quantity(limit(own), 'B')} to the shared file system; a node has"
        f" {show_quantity(own.room, 'B')} of memory to spare.\n"
        f"Target: a goodput of {(1 - MARGIN) * best(own)[0]:.2%}."
    )


def ways(name):
    """Return what a checkpoint costs in each way, in words."""
    own, lines = own_of(name), []
    for way in WAYS:
        price = saving(experiment_of(own, way))
        text = f"{way}: training stalls for {show_quantity(float(price.blocked), 's')}"
        if price.background:
            text += f", then it is written for {show_quantity(float(price.background), 's')} in the background"
        text += f"; {show_quantity(float(price.written), 'B')} are written"
        if price.host_copy:
            text += (
                f"; a copy takes {show_quantity(float(price.host_copy), 'B')} of each node's memory"
            )
        if price.survived:
            text += f"; {price.survived:.0%} of failures leave the nodes' disks intact, and a restart reads those"
        lines.append(text + ".")
    return say("\n".join(lines))


def hours_between_failures(name):
    """Return the hours between two failures of the learner's machine."""
    return mtbf_of(own_of(name)) / HOUR


def best_of_three(name):
    """Return which of three intervals has the highest goodput, saving synchronously."""
    own = own_of(name)
    return max(EVERY, key=lambda each: goodput_of(own, "synchronous", each[1]))[0]


def check_formulas(expected_time, best_interval, name):
    """Return the findings on the formulas for the page."""
    return show(formula_findings(expected_time, best_interval, own_of(name)), "Your formulas")


def check_choice(choice, name):
    """Return the findings on the choice for the page."""
    return show(choice_findings(choice, own_of(name)), "Your checkpoint method")


def restarts(file, name, folder=None):
    """Return the findings on the save and resume of a file, and the restarts as text."""
    own = restarts_of(seed_of(name))
    if not available():
        words = "Not run: this system cannot fork a process; Linux, macOS and WSL can."
        return [later(law, words) for law in LAWS], ""
    try:
        result = run_with_kills(Path(file), own, folder)
    except LabError as error:
        return [broken(LAWS[0], str(error)), *map(later, LAWS[1:])], ""
    return restart_findings(result, own), restarts_text(result, own)


def check_restarts(save, resume, name):
    """Save the cells of both to a file, run with them under kills, and return the findings for the page."""
    with tempfile.TemporaryDirectory(prefix="dlhpc-lab-") as folder:
        try:
            found, text = restarts(save_cells(save, Path(folder) / "step.py", resume), name)
        except LabError as error:
            return say(str(error))
    return show(
        found, "A run that is killed (kill -9)", "; ".join(text.splitlines()) + "." * bool(text)
    )


def hand_in(name, *functions):
    """Save the cells as step.py and say what of all holds."""
    if not passed(formula_findings(*functions[:2], own_of(name))):
        return say("Not yet: your formulas have to hold first.")
    found = partial(findings, file=HERE / "step.py")
    return save_and_check(HERE, NAMES, found, name, functions)


def findings(given, name, file, folder=None):
    """Return what holds for all that is handed in: functions by their names in NAMES, and the file they are in."""
    own = own_of(name)
    paper = formula_findings(given["expected_time"], given["best_interval"], own)
    return [*paper, *choice_findings(given["choice"], own), *restarts(file, name, folder)[0]]


def main():
    """Check step.py."""
    file, name, *folder = arguments("step.py", '"your name"', "FOLDER", optional=1)
    if folder and not Path(folder[0]).is_dir():
        raise Unusable(f"{folder[0]} is not a folder.")
    place = Path(folder[0]) if folder else None
    end_with(findings(handed_in(file, NAMES), name, file, place))


if __name__ == "__main__":
    end_together(main)
