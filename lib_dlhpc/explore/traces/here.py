"""An unmodified mpi4py program, traced on ranks of this machine; the same predicted and simulated.

run()        starts it; from_meeting(): its trace from the barrier on
ways()       the time of the mean rank, and what the late one costs: predicted, simulated, measured
"""

import base64
import io
import threading
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, amount
from lib_dlhpc.explore.traces.charts import rank_parts
from lib_dlhpc.explore.traces.process import scratch, through
from lib_dlhpc.lifetime import owned
from lib_dlhpc.prediction.communication.neighbors import predict_neighbors
from lib_dlhpc.simulation import program, ring, simulate_neighbors
from lib_dlhpc.spec.machine import Machine, load_machine
from lib_dlhpc.timeline import Timeline
from lib_dlhpc.timeline.analysis import Analysis, analyze
from lib_dlhpc.timeline.formats import read, write

PROGRAM = Path(__file__).with_name("program.py")
RANKS, STEPS, WORK = 4, 20, 0.04
FIRST = 2 / 3  # of the work: before the messages
NOBODY = -1
FOUND_AS = {
    "computes longer": ("load imbalance", "wait at collective"),
    "sends late": ("late sender",),
}
TERMS = ("works", "waits for a sender", "waits at a collective", "moves data")

Ways = dict[str, dict[str, float]]  # s by term, then by engine

WHO = {"nobody": NOBODY, **{f"rank {rank}": rank for rank in range(RANKS)}}
BY = (0.02, 0.04, 0.08)  # s a step
SIZES = (10_000, 100_000, 1_000_000)  # B


class Setting(NamedTuple):
    """What is planted: which rank is late, how, by how many s a step; B of a message."""

    rank: Annotated[int, Slider("Late rank", "The rank that is planted", WHO)] = 2
    how: Annotated[str, Dropdown("It", "What it does", FOUND_AS.keys())] = "computes longer"
    by: Annotated[float, Slider("By", "In each step", BY, amount("s"))] = 0.04
    size: Annotated[int, Slider("Messages", "To each neighbor", SIZES, amount("B"))] = 100_000


@dataclass(frozen=True, eq=False)
class Traced:
    """A run: its trace from the barrier on, and what each rank slept in each step, s."""

    timeline: Timeline
    before: NDArray[Any]  # (steps, ranks)
    after: NDArray[Any]


def run(setting: Setting, stop: threading.Event) -> Traced:
    """Trace the program. Raises Cancelled and RunError; nothing is left of it in any case."""
    options = f"--steps {STEPS} --work {WORK:g} --bytes {setting.size}"
    if setting.rank != NOBODY:
        before = " --before" if setting.how == "sends late" else ""
        options += f" --rank {setting.rank} --by {setting.by:g}{before}"
    with scratch("dlhpc-traced-") as folder:
        out, own = folder / "trace.npz", (str(PROGRAM), *options.split(), "--slept", str(folder))
        through(("trace", "run", "-n", str(RANKS), "--out", str(out), *own), folder, stop)
        slept = np.stack([np.load(folder / f"slept-{rank}.npy") for rank in range(RANKS)], axis=1)
        return Traced(from_meeting(read(out)), slept[..., 0], slept[..., 1])


def from_meeting(whole: Timeline) -> Timeline:
    """Return a trace from the barrier on: a rank that was started late is not late."""
    barrier = np.array(whole.names)[whole.name] == "MPI_Barrier"
    met = float(whole.start[barrier].max())
    own = whole.select(whole.stop >= met)
    return replace(own, start=np.maximum(own.start, met) - met, stop=own.stop - met)


def asked(setting: Setting) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the s of work of each rank before its messages and after them, (steps, ranks) each."""
    before = np.full((STEPS, RANKS), FIRST * WORK)
    after = np.full((STEPS, RANKS), (1 - FIRST) * WORK)
    late = np.where(np.arange(RANKS) == setting.rank, setting.by, 0.0)
    if setting.rank == NOBODY:
        return before, after
    if setting.how == "sends late":  # all do as much, the others after their messages
        return before + late, after + setting.by - late
    return before, after + late


def machine() -> Machine:
    """Return nodes whose network is the memory of a laptop."""
    laptop = load_machine("laptop")
    return replace(laptop, nodes=RANKS, inter_node=laptop.intra_node)


def ways(setting: Setting, traced: Traced) -> Ways:
    """Return the s of the mean rank by term, and what the late rank costs, by engine.

    Predicted: from what was asked for; simulated: from what each rank really slept in each step.
    """
    link = machine().inter_node
    message, hops = link.latency + setting.size / link.bandwidth, np.log2(RANKS)
    predicted = predict_neighbors(*asked(setting), message, hops * link.latency)
    slept = program(STEPS, RANKS, traced.before, traced.after, 0.0, setting.size)
    simulated = simulate_neighbors(slept, ring(machine(), RANKS), barrier=True)
    engines = {"simulated": analyze(simulated), "measured": analyze(traced.timeline)}
    parts = {"predicted": predicted.terms} | {n: rank_parts(a) for n, a in engines.items()}
    terms = {n: {way: float(own[n].mean()) for way, own in parts.items()} for n in TERMS}
    terms["the run"] = {"predicted": predicted.seconds} | {n: a.span for n, a in engines.items()}
    if setting.rank == NOBODY:
        return terms
    pairs = 2 if setting.how == "sends late" else 1  # both neighbors wait
    cost = {name: cost_of(setting, one) for name, one in engines.items()}
    planted = pairs * STEPS * setting.by
    return {"what the late rank costs": {"predicted": planted, **cost}, **terms}


def cost_of(setting: Setting, analysis: Analysis) -> float:
    """Return the s that the late rank costs by the analysis; 0: not found."""
    own = {one.kind: one.seconds for one in reversed(analysis.findings) if one.rank == setting.rank}
    return next((own[kind] for kind in FOUND_AS[setting.how] if kind in own), 0.0)


def files(timeline: Timeline) -> dict[str, bytes]:
    """Return a trace as files to keep: for Perfetto and Chrome, and an OTF2 archive in a zip."""
    with owned.temporary_folder("dlhpc-traced-") as folder:
        write(timeline, folder / "trace.json")
        write(timeline, folder / "trace.otf2")
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted((folder / "trace.otf2").rglob("*")):
                archive.write(file, str(file.relative_to(folder)))
        chrome = (folder / "trace.json").read_bytes()
        return {"trace.json": chrome, "trace.otf2.zip": packed.getvalue()}


def download_html(name: str, content: bytes, words: str) -> str:
    """Return a link that saves a file."""
    kind = "application/zip" if name.endswith(".zip") else "application/json"
    data = base64.b64encode(content).decode("ascii")
    return f'<a style="text-decoration: underline" download="{name}" href="data:{kind};base64,{data}">{words}</a>'


def longer_if_late(setting: Setting) -> float:
    """Return the s by which the run gets longer because the late rank sends late, all ranks having the same work."""
    before, after = asked(setting)
    at_once = np.full_like(before, FIRST * WORK)
    balanced = predict_neighbors(at_once, before + after - at_once, 0.0, 0.0)
    return predict_neighbors(before, after, 0.0, 0.0).seconds - balanced.seconds
