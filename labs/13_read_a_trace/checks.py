"""Checks of lab 13: is the account of a step right, who waits for whom, what is critical, and what would help?

In the notebook:   traces(NAME), steps(NAME), runs(NAME), plot(NAME, 0), check_account(account, NAME),
                   check_waits(late_senders, collective_waits, NAME), check_culprit(culprit, NAME),
                   check_path(critical_path, dominates, NAME), check_what_if(what_if, NAME), hand_in(NAME, all seven)
In a terminal:     python checks.py step.py "your name"     all thirteen, on hidden traces too
"""

from pathlib import Path

from lib_dlhpc.explore.labs.lab import save_and_check, say, show
from lib_dlhpc.labs.findings import seed_of
from lib_dlhpc.labs.program import check_file, end_together
from lib_dlhpc.labs.read_a_trace.account_laws import account_findings
from lib_dlhpc.labs.read_a_trace.path_laws import path_findings
from lib_dlhpc.labs.read_a_trace.traces import (
    again,
    events_of,
    run_trace,
    runs_of,
    share_of,
    step_trace,
    steps_of,
)
from lib_dlhpc.labs.read_a_trace.wait_laws import culprit_findings, wait_findings
from lib_dlhpc.labs.read_a_trace.what_if_laws import what_if_findings
from lib_dlhpc.timeline import span

HERE = Path(__file__).parent
NAMES = (
    *("account", "late_senders", "collective_waits", "culprit"),
    *("critical_path", "dominates", "what_if"),
)
LONGER = 1  # the run of those shown in which a rank computes longer


def traces(name):
    """Return the learner's traces in words."""
    seed = seed_of(name)
    lines = [f"steps[{k}]: {one.words}" for k, one in enumerate(steps_of(seed))]
    lines += [f"runs[{k}]: {one.words}" for k, one in enumerate(runs_of(seed))]
    return say("\n".join(lines))


def steps(name):
    """Return the events of the learner's training steps, and how many ranks each has."""
    found = [step_trace(one) for one in steps_of(seed_of(name))]
    return [(events_of(each), each.ranks) for each in found]


def runs(name):
    """Return the events of the learner's runs, and how many ranks each has."""
    return [(events_of(run_trace(one)), one.ranks) for one in runs_of(seed_of(name))]


def plot(name, number):
    """Return a chart of one of the learner's runs."""
    return run_trace(runs_of(seed_of(name))[number]).plot()


def saved_percent(name):
    """Return by how many % the second run is shorter where its late rank takes half as long."""
    run = runs_of(seed_of(name))[LONGER]
    work = tuple(0.5 if rank == run.rank else 1.0 for rank in range(run.ranks))
    return 100 * (1 - span(again(run, work, share_of(run))) / span(run_trace(run)))


def check_account(account, name):
    """Return the findings on the account for the page."""
    return show(account_findings(account, steps_of(seed_of(name))), "Your account")


def check_waits(late_senders, collective_waits, name):
    """Return the findings on the waits for the page."""
    found = wait_findings(late_senders, collective_waits, runs_of(seed_of(name)))
    return show(found, "Your waits")


def check_culprit(culprit, name):
    """Return the findings on the late rank for the page."""
    return show(culprit_findings(culprit, runs_of(seed_of(name))), "Your culprit")


def check_path(critical_path, dominates, name):
    """Return the findings on the critical path for the page."""
    found = path_findings(critical_path, dominates, runs_of(seed_of(name)))
    return show(found, "Your critical path")


def check_what_if(what_if, name):
    """Return the findings on the forecast for the page."""
    return show(what_if_findings(what_if, runs_of(seed_of(name))), "Your forecast")


def findings(given, name):
    """Return what holds for all that is handed in, on hidden traces as well: functions by their names in NAMES."""
    account, late_senders, collective_waits, culprit, critical_path, dominates, what_if = (
        given[each] for each in NAMES
    )
    seed = seed_of(name)
    own = [one for hidden in (False, True) for one in runs_of(seed, hidden)]
    return [
        *account_findings(account, [*steps_of(seed), *steps_of(seed, hidden=True)]),
        *wait_findings(late_senders, collective_waits, own),
        *culprit_findings(culprit, own),
        *path_findings(critical_path, dominates, own),
        *what_if_findings(what_if, own),
    ]


def hand_in(name, *functions):
    """Save the cells as step.py and say what of all holds."""
    return save_and_check(HERE, NAMES, findings, name, functions)


def main():
    """Check step.py."""
    check_file(NAMES, findings)


if __name__ == "__main__":
    end_together(main)
