"""Widgets of lab 9: runs on the hidden cluster as tables, and a run on a real one."""

from pathlib import Path
from typing import Any

import ipywidgets

from lib_dlhpc.explore.blocks.panels import table_html
from lib_dlhpc.explore.labs import lab
from lib_dlhpc.explore.submit.found import found
from lib_dlhpc.explore.submit.page import submitted
from lib_dlhpc.labs.predict_your_cluster.hidden_cluster import TERMS, Cluster, Points, jobs_of
from lib_dlhpc.labs.predict_your_cluster.real_cluster import OURS, experiment_here, predicted_here
from lib_dlhpc.labs.predict_your_cluster.tables import Given, run_lines
from lib_dlhpc.launch import BatchJob
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show


def run_table(own: Cluster, given: Given, ranks: int, nodes: int) -> ipywidgets.HTML:
    """Return the runs of both networks that are shown, as tables for the page. Raises LabError, SpecError."""
    page = ""
    for job in jobs_of(own)[:2]:
        lines, words = run_lines(own, job, given, ranks, nodes)
        title = f'"{job.name}" on {count(ranks, "rank")} of {count(nodes, "node")}'
        page += f"<p><b>{title}</b></p>{table_html(lines)}<p>{words}</p>"
    return on_page(page + "<p>off: predicted less measured, as a share of the measured step.</p>")


def on_page(html: str) -> ipywidgets.HTML:
    """Return HTML in the looks of the other results, read out when it changes."""
    return lab.on_page(f'<div role="status">{html}</div>')


def run_here(
    points: tuple[Points, Points],
    given: Given,
    ranks: int,
    to: str,
    site: str | None,
    folder: Path,
    **more: Any,
) -> ipywidgets.VBox:
    """Return the prediction and the run, submitted now or before. Raises LabError, SpecError."""
    words = predicted_here(points, given, ranks)
    run = submitted(experiment_here(ranks), ranks, to, site, folder, **more)
    took = "Rerun this cell when the run is done: then it shows the terms of the run."
    if run.job is not None and run.job.state == "done":
        took = measured_terms(run.job)
    below = "Below, the library's own prediction and the run."
    return ipywidgets.VBox([lab.say(f"{words}\n{took}\n{below}"), run])


def measured_terms(job: BatchJob) -> str:
    """Return the terms of a run that is done as a learner has them. Raises SpecError."""
    took = found(job)
    terms = dict.fromkeys((*TERMS, "the rest"), 0.0)
    for name, ways in took.terms.items():
        terms[OURS.get(name, "the rest")] += ways.get("measured", 0.0)
    shown = ", ".join(f"{name} {show(seconds, 's')}" for name, seconds in terms.items())
    return f"Measured: {shown}; a step {show(took.step['measured'], 's')}."
