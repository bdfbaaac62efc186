"""The rows of all ranks become one Timeline: one clock, one numbering of communicators, matches found."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.errors import SpecError
from lib_dlhpc.timeline.clocks import offset, on_rank_0
from lib_dlhpc.timeline.kinds import KINDS, STREAMS
from lib_dlhpc.timeline.matching import match_collectives, match_messages
from lib_dlhpc.timeline.recorder import HERE, ROW, UNKNOWN, WORLD, Recorder
from lib_dlhpc.timeline.table import COLUMNS, Timeline, check

SEND, RECEIVE, COLLECTIVE = (KINDS.index(kind) for kind in ("send", "receive", "collective"))
END = np.dtype([("comm", "i8"), ("source", "i8"), ("target", "i8"), ("tag", "i8"), ("order", "i8")])


@dataclass(frozen=True, eq=False)
class Part:
    """The records of one rank. ended: its final status, None if it wrote none."""

    rank: int
    rows: NDArray[Any]  # ROW
    words: Sequence[tuple[str, str, str]]
    comms: Sequence[str] = ()
    clocks: Sequence[tuple[int, int]] = ()
    ended: str | None = None
    lost: Sequence[str] = ()  # what is not in it, in words


def collect(comm: Any, recorder: Recorder = HERE) -> Timeline | None:
    """Return the Timeline of all ranks of `comm` on its rank 0, None elsewhere; all of them take part.

    Time 0 is the first event of any rank. Recording continues; the rows stay (`recorder.clear`).
    """
    on, recorder.on = recorder.on, False
    try:
        recorder.clock(offset(comm))
        mine = (recorder.rows(), recorder.words, recorder.comms, recorder.clocks)
        parts = comm.gather(mine)
    finally:
        recorder.on = on
    if comm.rank:
        return None
    return assemble([Part(rank, *part) for rank, part in enumerate(parts)], comm.size)


def assemble(parts: Sequence[Part], ranks: int) -> Timeline:
    """Return the Timeline of what `ranks` ranks took down; parts of some may be missing."""
    names: dict[str, int] = {}
    comms: dict[str, int] = {WORLD: 0}
    nobody = Part(0, np.zeros(0, ROW), ())
    tables = [_columns(part, names, comms) for part in (nobody, *parts)]
    table = {
        name: np.concatenate([table.pop(name) for table in tables]) for name in list(tables[0])
    }
    _match(table)
    zero = int(table["start"].min(initial=2**63 - 1))
    for edge in ("start", "stop"):
        table[edge] = (table[edge] - zero) / 1e9
    np.maximum(table["bytes"], 0, out=table["bytes"])  # unknown sizes
    order = np.lexsort((table["start"], table["rank"]))
    typed = {
        name: table.pop(name)[order].astype(kind, copy=False) for name, kind in COLUMNS.items()
    }
    return check(Timeline(**typed, names=tuple(names), ranks=ranks, source="measured"))


def read_part(path: Path, rank: int) -> Part:
    """Return what a rank left in its files (see Recorder), however it ended. Raises SpecError if none."""
    try:
        data = path.read_bytes()
        lines = path.with_suffix(".words").read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise SpecError(f"rank {rank} left nothing in {path}: {error.strerror}.") from None
    facts: dict[str, list[Any]] = {"words": [], "comm": [], "clock": [], "ended": [], "lost": []}
    for line in lines[:-1]:  # the last is empty, or was being written when its rank died
        for what, value in json.loads(line).items():
            facts.setdefault(what, []).append(value)
    rows = np.frombuffer(data[: len(data) // ROW.itemsize * ROW.itemsize], ROW)
    whole = (rows["event"] > 0) & (rows["event"] <= len(facts["words"]))
    words = [tuple(words) for words in facts["words"]]
    ended = facts["ended"][-1] if facts["ended"] else None
    return Part(rank, rows[whole], words, facts["comm"], facts["clock"], ended, facts["lost"])


def _columns(part: Part, names: dict[str, int], comms: dict[str, int]) -> dict[str, NDArray[Any]]:
    """Return a rank's rows as columns; names and communicators get numbers that hold for all ranks."""
    used, event = np.unique(part.rows["event"], return_inverse=True)
    words = [part.words[number - 1] for number in used.tolist()]
    stream = np.array([STREAMS.index(stream) for stream, _, _ in words], np.int8)
    kind = np.array([KINDS.index(kind) for _, kind, _ in words], np.int8)
    name = np.array([names.setdefault(name, len(names)) for _, _, name in words], np.int32)
    comm = np.array([comms.setdefault(key, len(comms)) for key in part.comms or [WORLD]], np.int32)
    table: dict[str, NDArray[Any]] = {
        "rank": np.full(len(event), part.rank, np.int32),
        "stream": stream[event],
        "kind": kind[event],
        "name": name[event],
        "comm": comm[part.rows["comm"]],
        "match": np.full(len(event), -1, np.int64),
    }
    for edge in ("start", "stop"):
        table[edge] = on_rank_0(part.rows[edge].astype(np.int64), part.clocks)
    for column in ("bytes", "peer", "tag", "order"):
        table[column] = part.rows[column].copy()
    return table


def _match(table: dict[str, NDArray[Any]]) -> None:
    """Number what belongs together; a send whose size only its receiver recorded gets it from there."""
    kind, peer, match = table["kind"], table["peer"], table["match"]
    send = np.flatnonzero((kind == SEND) & (peer >= 0))
    receive = np.flatnonzero((kind == RECEIVE) & (peer >= 0))
    one, other = match_messages(_ends(table, send, True), _ends(table, receive, False))
    one, other = send[one], receive[other]
    match[one] = match[other] = np.arange(len(one))
    table["bytes"][one] = np.where(
        table["bytes"][one] == UNKNOWN, table["bytes"][other], table["bytes"][one]
    )
    together = np.flatnonzero((kind == COLLECTIVE) & (table["order"] >= 0))
    match[together] = len(one) + match_collectives(
        table["comm"][together], table["order"][together]
    )


def _ends(table: dict[str, NDArray[Any]], rows: NDArray[Any], sent: bool) -> NDArray[Any]:
    ends = np.zeros(len(rows), END)
    for column in ("comm", "tag", "order"):
        ends[column] = table[column][rows]
    ends["source" if sent else "target"] = table["rank"][rows]
    ends["target" if sent else "source"] = table["peer"][rows]
    return ends
