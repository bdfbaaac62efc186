"""Pipeline bubble of a measured run: idle time of its measured passes if messages took no time."""

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc import layout
from lib_dlhpc.program.intervals import NAMES
from lib_dlhpc.schedules.pipeline import Pipeline
from lib_dlhpc.schedules.pipeline_proof import idle_times
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.timeline import Timeline, mark_bubble

# Waits that may belong to the pipeline bubble.
WAITS = ("wait for activation", "wait for gradient", "wait for the exchange", "wait for the others")


def with_bubble(experiment: Experiment, pipeline: Pipeline, timeline: Timeline) -> Timeline:
    """Return the timeline of a run with the bubble separated from other waits.

    Each pass takes its mean duration over all steps and microbatches, collectives within the group included.
    """
    if pipeline.ranks == 1:
        return timeline
    forward, backward, weights = (_mean_pass(timeline, name, pipeline) for name in NAMES.values())
    backward += weights
    share = np.divide(weights, backward, out=np.zeros_like(weights), where=backward > 0)
    idle = np.zeros(timeline.ranks)
    for first in range(timeline.ranks):
        ranks = layout.group(experiment, first, "pipeline")
        if ranks[0] == first:
            of_stages = [
                [
                    column[ranks[stage % pipeline.ranks], stage // pipeline.ranks]
                    for stage in _stages(pipeline)
                ]
                for column in (forward, backward, share)
            ]
            idle[list(ranks)] = idle_times(pipeline, *of_stages)
    names = np.array([name.startswith(WAITS) for name in timeline.names])
    rows = timeline.where("compute", "wait") & names[timeline.name]
    steps = np.bincount(timeline.rank[timeline.where("", "update")], minlength=timeline.ranks)
    return mark_bubble(timeline, idle * np.maximum(steps, 1), rows)


def _stages(pipeline: Pipeline) -> range:
    return range(pipeline.ranks * pipeline.chunks)


def _mean_pass(timeline: Timeline, word: str, pipeline: Pipeline) -> NDArray[np.float64]:
    """Return the mean seconds of a pass whose name begins so, from its first row to its last, (ranks, chunks).

    A pass is one row, or several with the same name where it waited in between.
    """
    named = np.array([name.startswith(word) for name in timeline.names])
    table = timeline.select(timeline.where("compute") & named[timeline.name]).sorted()
    # Rows of one pass follow one another among those of their kind.
    edge = np.ones(len(table) + 1, dtype=np.bool_)
    edge[1:-1] = (np.diff(table.rank) != 0) | (np.diff(table.name) != 0)
    first, last = np.flatnonzero(edge[:-1]), np.flatnonzero(edge[1:])
    chunk_of = np.array([_chunk(name) for name in table.names])
    chunk, seconds = chunk_of[table.name[first]], table.stop[last] - table.start[first]
    place = table.rank[first] * pipeline.chunks + chunk
    many = timeline.ranks * pipeline.chunks
    total = np.bincount(place, weights=seconds, minlength=many)
    count = np.bincount(place, minlength=many)
    return (total / np.maximum(count, 1)).reshape(timeline.ranks, pipeline.chunks)


def _chunk(name: str) -> int:
    return int(name.rpartition(", chunk ")[2]) if ", chunk " in name else 0
