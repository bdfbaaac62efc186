"""Diagrams of the slides of module 11: a late sender, four problems and their traces, a buffer between programs."""

from lib_dlhpc.explore.slides import diagram as kit
from lib_dlhpc.explore.slides.parts import stacked
from lib_dlhpc.explore.traces import coupled_here, here
from lib_dlhpc.explore.traces.coupled import COSTS, RANKS, Setting
from lib_dlhpc.explore.traces.waits import Setting as Program
from lib_dlhpc.explore.traces.waits import trace
from lib_dlhpc.prediction.communication.coupled import predict_coupled

OWN, LAST = Setting(), RANKS - 1  # two programs, and the buffer between them
SHOWN, WAITS = 2, {"receive": kit.ORANGE, "collective": kit.GRAY}


def late(marked: bool = False) -> kit.Diagram:
    """Return steps of a traced program in which a rank sends late; marked: with the first wait."""
    setting = Program(how="sends late")
    own = trace(setting)
    end = sorted({each.stop for each in own if each.kind == "collective"})[SHOWN - 1]
    waits = [each for each in own if each.kind in WAITS and each.stop - each.start > end / 100]
    rows = []
    for rank in range(own.ranks):
        now, bars = 0.0, list[kit.Bar]()
        for each in waits:
            if each.rank != rank or each.stop > end:
                continue
            if each.start > now:
                bars.append(kit.Bar(now, each.start, "", kit.GREEN))
            bars.append(kit.Bar(each.start, each.stop, "", WAITS[each.kind]))
            now = each.stop
        if now < end:
            bars.append(kit.Bar(now, end, "", kit.GREEN))
        rows.append(kit.Lane(f"rank {rank}", bars))
    first = min(waits, key=lambda each: each.start)
    wall = (first.start, f"first wait, for rank {first.peer}") if marked else None
    return kit.lanes(
        rows, f"time of {SHOWN} steps; orange: receive, gray: allreduce", wall, side=0.14
    )


def cause() -> kit.Diagram:
    """Return the same steps with the first wait, and the rank at its other end."""
    return late(marked=True)


def balanced() -> kit.Diagram:
    """Return the work of each rank in a step, before and after it sends."""
    before, after = (each[0] for each in here.asked(here.Setting(how="sends late")))
    inks = {"before it sends": kit.ORANGE, "after": kit.GREEN}
    rows = {
        f"rank {rank}": dict(zip(inks, (float(before[rank]), float(after[rank])), strict=True))
        for rank in range(len(before))
    }
    return stacked(rows, inks, "s", "work of a step")


def apart() -> kit.Diagram:
    """Return what the two ranks of a workflow do, in all."""
    own = coupled_here.Setting()
    terms = predict_coupled(coupled_here.workflow(own), COSTS, own.ranks).terms
    both = own.ranks  # terms are means over the ranks
    rows = {
        "simulates": {"simulate": both * terms["simulate"]},
        "trains": {
            "train": both * terms["train"],
            "wait for samples": both * terms["wait for samples"],
        },
    }
    inks = {"simulate": kit.GREEN, "train": kit.ORANGE, "wait for samples": kit.GRAY}
    return stacked(rows, inks, "s", "time of the run")


DIAGRAMS = kit.written(globals()) | {
    "where_to_look: answer": cause,
    "Who waits for whom?": late,
    "sends_late: answer": balanced,
    "waiting_training: answer": apart,
}
