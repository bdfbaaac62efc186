"""Checks of lab 9: do the fits, the prediction and its bands hold, and does the repair predict unseen runs?

In the notebook:   calibration(NAME), points(NAME), check_fits(...), check_terms(...), check_band(...),
                   submit(NAME, ranks, nodes, all but cause), check_repair(cause, repaired, ...), hand_in(NAME, all six)
                   measured(TO, SITE), run(TO, SITE, RANKS, all but band, cause, repaired): a machine that is there
In a terminal:     python checks.py step.py "your name"        all seven laws, no clock
"""

from pathlib import Path

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.labs.lab import save_and_check, say, show
from lib_dlhpc.labs.findings import later, passed, seed_of
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.labs.predict_your_cluster.hidden_cluster import calibration as points_of
from lib_dlhpc.labs.predict_your_cluster.hidden_cluster import jobs_of, machine_of
from lib_dlhpc.labs.predict_your_cluster.laws import (
    TARGET,
    band_findings,
    cause_finding,
    fit_findings,
    target_finding,
    terms_finding,
)
from lib_dlhpc.labs.program import check_file, end_together

HERE = Path(__file__).parent
RUNS = HERE / "runs"  # of a real machine
NAMES = ("fit_messages", "fit_products", "terms", "band", "cause", "repaired")
NOWHERE = 'Not yet: choose where to run. TO = "local" is this machine, TO = "slurm" the cluster of a site file.'


def own_of(name):
    """Return the learner's own hidden machine."""
    return machine_of(seed_of(name))


def calibration(name):
    """Return the points of the learner's machine: messages and products, each (size, seconds of nine repeats)."""
    return points_of(own_of(name))


def points(name):
    """Return the learner's points as tables for the page."""
    return _tables(calibration(name))


def _tables(found):
    from lib_dlhpc.explore.blocks.panels import table_html
    from lib_dlhpc.explore.labs.predict_your_cluster import on_page
    from lib_dlhpc.labs.predict_your_cluster.tables import points_lines

    messages, products = found
    both = points_lines(messages, "message", "B"), points_lines(products, "product", "FLOP")
    return on_page(
        '<div style="display: flex; flex-wrap: wrap; gap: 3em">'
        + "".join(f"<div>{table_html(lines)}</div>" for lines in both)
        + "</div>"
    )


def jobs(name):
    """Return the two networks that the learner may run, in words."""
    shown = jobs_of(own_of(name))[:2]
    return say(
        "\n".join(
            f'"{job.name}": layers of {", ".join(map(str, job.widths))}; {job.batch} samples per step over all'
            f" ranks; {len(job.products)} matmuls, a gradient of {job.gradient:,.0f} B."
            for job in shown
        )
    )


def times_as_fast(name):
    """Return how many times as fast 8 ranks are as 2."""
    from lib_dlhpc.labs.predict_your_cluster.tables import times_as_fast as found

    return found(own_of(name))


def most_off(name):
    """Return which term is off most on 8 ranks of 2 nodes."""
    from lib_dlhpc.labs.predict_your_cluster.tables import most_off as found

    return found(own_of(name))


def check_fits(fit_messages, fit_products, name):
    """Return the findings on both fits for the page."""
    return show(fit_findings(fit_messages, fit_products, own_of(name)), "Your fits")


def check_terms(terms, name):
    """Return the finding on the prediction for the page."""
    return show([terms_finding(terms, own_of(name))], "Your prediction")


def check_band(band, terms, name):
    """Return the findings on the bands for the page."""
    return show(band_findings(band, terms, own_of(name)), "Your bands")


def prediction_findings(given, name):
    """Return what holds for all that has to be there before anything is run."""
    own = own_of(name)
    fits = fit_findings(given["fit_messages"], given["fit_products"], own)
    return [
        *fits,
        terms_finding(given["terms"], own),
        *band_findings(given["band"], given["terms"], own),
    ]


def submit(name, ranks, nodes, fit_messages, fit_products, terms, band, repaired):
    """Run both networks on the hidden machine, once the prediction holds; return them beside it, for the page."""
    from lib_dlhpc.explore.labs.predict_your_cluster import run_table

    given = dict(zip(NAMES, (fit_messages, fit_products, terms, band, None, repaired), strict=True))
    try:
        if not passed(prediction_findings(given, name)):
            return say(
                "Not yet: nothing runs before it is predicted. Your fits, terms and bands have "
                "to hold first."
            )
        return run_table(own_of(name), given, ranks, nodes)
    except (LabError, SpecError) as error:
        return say(str(error))


def repair_findings(given, name):
    """Return whether the cause is named, and the repair predicts unseen runs."""
    own = own_of(name)
    named = cause_finding(given["cause"], own)
    before = fit_findings(given["fit_messages"], given["fit_products"], own)
    if not passed([*before, terms_finding(given["terms"], own)]):
        return [named, later(TARGET, "Checked as soon as your fits and your prediction hold.")]
    return [named, target_finding(given, own)]


def check_repair(cause, repaired, fit_messages, fit_products, terms, name):
    """Return the findings on cause and repair for the page."""
    given = dict(
        zip(NAMES, (fit_messages, fit_products, terms, None, cause, repaired), strict=True)
    )
    return show(repair_findings(given, name), "Your repair")


def findings(given, name):
    """Return what holds for all that is handed in: functions by their names in NAMES."""
    return [*prediction_findings(given, name), *repair_findings(given, name)]


def hand_in(name, *functions):
    """Save the cells as step.py and say what of all holds."""
    return save_and_check(HERE, NAMES, findings, name, functions)


def measured(to, site=None):
    """Measure two ranks of a real machine, now or before; return its points as tables, for the page."""
    return _there(to, site, _tables) if to else say(NOWHERE)


def run(to, site, ranks, fit_messages, fit_products, terms):
    """Submit the run on a real machine, once it is measured; return it and the prediction."""
    from lib_dlhpc.explore.labs.predict_your_cluster import run_here

    given = {"fit_messages": fit_messages, "fit_products": fit_products, "terms": terms}

    def runs(found):
        return run_here(found, given, ranks, to, site, RUNS / f"{to}-{ranks}")

    return _there(to, site, runs) if to else say(NOWHERE)


def _there(to, site, then):
    """Return what `then` makes of the points of a real machine, or in words why there are none."""
    from lib_dlhpc.labs.predict_your_cluster import real_cluster as here

    try:
        job = here.measuring(HERE / "measure.py", RUNS / f"measured-{to}", to, site)
        found = here.measured(job)
        if found is None:
            return say(f"{job.label}, the job that measures, is {job.state}. Run this cell again.")
        return then(found)
    except (LabError, SpecError) as error:
        return say(str(error))


def main():
    """Check step.py."""
    check_file(NAMES, findings)


if __name__ == "__main__":
    end_together(main)
