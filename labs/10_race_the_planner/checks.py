"""Checks of lab 10: is the estimate sound, does the planner find a good layout, and what do two plans take here?

In the notebook:   tracks(NAME), check_estimate(estimate, NAME), check_planner(planner, NAME), race(planner, NAME),
                   on_ranks(estimate, planner, bet, NAME), hand_in(estimate, planner, bet, NAME)
In a terminal:     python checks.py step.py "your name"                  all eight, no clock
                   mpiexec -n 4 python checks.py step.py "your name"     two plans, measured; also with 2
"""

from pathlib import Path

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.labs.lab import on_page, save_and_check, save_and_run, say, show
from lib_dlhpc.labs.attempts import report
from lib_dlhpc.labs.findings import seed_of
from lib_dlhpc.labs.mistakes import Endless, LabError
from lib_dlhpc.labs.program import Unusable, arguments, end_together, end_with, handed_in
from lib_dlhpc.labs.race_the_planner.estimate_laws import estimate_findings
from lib_dlhpc.labs.race_the_planner.laws import planner_findings
from lib_dlhpc.labs.race_the_planner.race import BUDGET, attempt, greedy, race_lines
from lib_dlhpc.labs.race_the_planner.real_plans import (
    here,
    measured,
    picks,
    regret_words,
    same_finding,
)
from lib_dlhpc.labs.race_the_planner.tracks import tracks_of
from lib_dlhpc.spec.units import format_quantity as show_quantity

HERE = Path(__file__).parent
NAMES = ("estimate", "planner", "bet")


def tracks(name):
    """Return the tracks that are shown, in words."""
    lines = []
    for track in tracks_of(seed_of(name)):
        e, size = track.experiment, track.experiment.model.options
        lines.append(
            f"By {track.objective}: a GPT of {size['layers']} blocks, hidden size {size['hidden']}, sequences of"
            f" {size['sequence']}; {int(e.devices)} devices of {e.machine.name} with"
            f" {show_quantity(e.machine.device.memory, 'B')} each, {int(e.machine.nics)} x"
            f" {e.machine.inter_node.name}; a global batch of {int(e.global_batch)}."
            f" {len(track.layouts)} legal layouts: "
            + "; ".join(f"{each} {', '.join(map(str, v))}" for each, v in track.fields.items())
            + "."
        )
    return say("\n\n".join([*lines, f"Budget: {BUDGET} predictions per track."]))


def greedy_regret(name):
    """Return the regret of coordinate descent on the first track, in percent; 1000 where it finds nothing that fits."""
    return min(1000.0, 100 * attempt(greedy, tracks_of(seed_of(name))[0]).regret)


def race(planner, name):
    """Return the race on the shown tracks as a table."""
    from lib_dlhpc.explore.blocks.panels import table_html

    try:
        table = table_html(race_lines(planner, tracks_of(seed_of(name))))
    except Endless as error:
        return say(str(error))
    below = "Regret and, in parentheses, the number of predictions used."
    return on_page(f'<div role="status">{table}<p>{below}</p></div>')


def check_estimate(estimate, name):
    """Return the findings on the estimate on the shown tracks for the page."""
    return show(estimate_findings(estimate, tracks_of(seed_of(name))), "Your estimate")


def check_planner(planner, name):
    """Return the findings on the shown tracks for the page."""
    return show(planner_findings(planner, tracks_of(seed_of(name))), "Your planner")


def findings(given, name):
    """Return what holds for all that is handed in, hidden tracks included."""
    seed = seed_of(name)
    shown, hidden = tracks_of(seed), tracks_of(seed, hidden=True)
    paper = estimate_findings(given["estimate"], shown)
    return [*paper, *planner_findings(given["planner"], shown, hidden)]


def hand_in(estimate, planner, bet, name):
    """Save the cells as step.py and say what of all holds."""
    return save_and_check(HERE, NAMES, findings, name, (estimate, planner, bet))


def on_ranks(estimate, planner, bet, name, ranks=4):
    """Save the cells as step.py and run both plans on MPI ranks of this machine."""
    rows = _rows({"planner": planner, "bet": bet}, ranks)  # before anything is started
    if isinstance(rows, str):
        return say(rows)
    return save_and_run(HERE, name, (estimate, planner, bet), ranks)


def main():
    """Check step.py; on several ranks, run and measure two plans."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    file, name = arguments("step.py", '"your name"')
    given = handed_in(file, NAMES)
    if comm.size == 1:
        end_with(findings(given, name))
    rows = comm.bcast(_rows(given, comm.size) if comm.rank == 0 else None)
    if isinstance(rows, str):
        raise Unusable(rows)
    plans = measured(here(comm.size), rows, comm)
    if comm.rank == 0:
        result = [same_finding(plans)]
        print(regret_words(plans, comm.size))
        print(report(result))


def _rows(given, ranks):
    """Return the rows of both plans, or why there are none: a planner that draws would differ between ranks."""
    try:
        return picks(given["planner"], given["bet"], here(ranks))
    except (LabError, SpecError) as error:
        return str(error)


if __name__ == "__main__":
    end_together(main)
