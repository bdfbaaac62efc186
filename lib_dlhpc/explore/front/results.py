"""What the front door shows: one training step at any size, and every published row beside its prediction."""

from typing import Any

import numpy as np

from lib_dlhpc import predict, simulate, validate
from lib_dlhpc.prediction.validation.published import published as measured
from lib_dlhpc.prediction.validation.replays import replay
from lib_dlhpc.prediction.validation.validate import Row
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_plain
from lib_dlhpc.timeline import Timeline

NODES = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # of 8 GPUs
NETWORKS = (10, 25, 50, 100, 400)  # Gb/s, the NIC of a node
SHOWN = 8  # ranks
START = (NODES.index(32), NETWORKS.index(50))  # the published run
MISS = 0.25  # relative error from which a row is named in the plot
SAID = {  # of classes of rows whose short names a visitor cannot know
    "NeMo": "LLMs in NeMo",
    "NeMo experts": "expert LLMs in NeMo",
    "torchtitan": "LLMs in torchtitan",
    "no input stall": "input keeps up",
    "3-D": "3-D parallelism",
    "collective": "one collective",
    "definition": "counts by definition",
    "uncalibrated": "no measured rate",
    "activations": "activation memory",
    "input": "input stall",
}


def goyal() -> Experiment:
    """Return "ImageNet in one hour" on as many nodes as the page offers."""
    return replay("goyal-2017").experiment.set({"machine.nodes": max(NODES)})


def steps() -> list[list[dict[str, Any]]]:
    """Return the step for each number of nodes and each network: see step()."""
    run = goyal()
    return [
        [
            step(
                run.set({"strategy.nodes": nodes, "machine.inter_node.bandwidth": speed * 1e9 / 8})
            )
            for speed in NETWORKS
        ]
        for nodes in NODES
    ]


def step(experiment: Experiment) -> dict[str, Any]:
    """Return the predicted figures of a run, and one simulated step of some of its ranks.

    Times in ms but for `minutes`; waiting and exposed: fractions of the predicted step.
    """
    prediction, gpus = predict(experiment), int(experiment.devices)
    compute, whole = float(prediction.compute), float(prediction.step_time)
    ranks, slowest, end = ranks_of(simulate(experiment))
    return {
        "gpus": gpus,
        "speedup": round(gpus * compute / whole, 1),
        "efficiency": round(compute / whole, 4),
        "waiting": round(float(prediction.straggler_wait) / whole, 4),
        "exposed": round(float(prediction.exposed_communication) / whole, 4),
        "mean": round(1e3 * whole, 1),
        "minutes": round(float(prediction.time_to_train) / 60, 2),
        "slowest": slowest,
        "end": end,
        "ranks": ranks,
    }


def ranks_of(timeline: Timeline) -> tuple[list[dict[str, Any]], float, float]:
    """Return some ranks, the slowest among them; when the slowest ends backward; when the step ends (ms)."""
    backward = timeline.where("compute", "backward")
    done = np.zeros(timeline.ranks)
    np.maximum.at(done, timeline.rank[backward], timeline.stop[backward])
    order = np.argsort(done)
    kept = order[np.unique(np.linspace(0, len(order) - 1, SHOWN).round().astype(int))]
    shown = []
    for rank in sorted(kept.tolist()):
        own = timeline.select(timeline.rank == rank)
        sent = own.where("communication", "communication")
        forward = own.where("compute", "forward")
        shown.append(
            {
                "rank": rank,
                "forward": ms(own.stop[forward].max()),
                "backward": ms(done[rank]),
                "sent": [
                    [ms(a), ms(b)] for a, b in zip(own.start[sent], own.stop[sent], strict=True)
                ],
            }
        )
    return shown, ms(done.max()), ms(timeline.stop[timeline.where("compute")].max())


def ms(seconds: float) -> float:
    """Return milliseconds, to a hundredth."""
    return round(1e3 * float(seconds), 2)


def published() -> dict[str, Any]:
    """Return the published time of the run and its prediction, in minutes."""
    run = replay("goyal-2017")
    predicted = float(predict(run.experiment).time_to_train) / 60
    return {
        "title": "Goyal et al. 2017",
        "predicted": predicted,
        "published": run.published_time / 60,
    }


def proof() -> list[dict[str, Any]]:
    """Return every scored row: its class, both values, their ratio, and whether it is a named miss.

    The ratio is None where a value is 0, as of a row that says whether the memory suffices.
    """
    return [_row(row) for row in validate()]


def _short(row: Row) -> str:
    """Return what was run, and on what, in a few words: "ResNet-50, 2,176 V100"."""
    entry = measured(row.id)
    device = str(entry.get("device", "")).split(" ")[0].strip("-")
    count = str(entry.get("count", ""))
    many = f"{int(count):,} " if count.isdecimal() and device else ""
    return ", ".join(filter(None, (str(entry.get("model", "")), f"{many}{device}"))) or row.id


def _row(row: Row) -> dict[str, Any]:
    positive = row.predicted > 0 and row.published > 0
    unit = "" if row.unit == "fraction" else f" {row.unit}"
    return {
        "id": row.id,
        "short": _short(row),
        "group": SAID.get(row.group, row.group),
        "quantity": row.quantity.replace("_", " "),
        "predicted": f"{format_plain(row.predicted)}{unit}",
        "published": f"{format_plain(row.published)}{unit}",
        "ratio": row.predicted / row.published if positive else None,
        "signed": row.error,
        "error": abs(row.error),
        "miss": abs(row.error) > MISS,
        "reason": row.reason,
        "source": measured(row.id)["source"],
    }
