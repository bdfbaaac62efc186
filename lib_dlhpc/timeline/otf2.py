"""OTF2, the trace archives of Score-P, Scalasca and Vampir: a timeline written as one.

An archive is a folder: the anchor traces.otf2, definitions, a file of events a location. Here

    a rank            is a process (location group) and, by its number, a rank of MPI_COMM_WORLD
    a stream          is a thread (location) of it; more than one where its events overlap without nesting
    an event          is a region entered and left, in nanoseconds since 0; its kind is its description
    send, receive     have an MpiSend, MpiRecv within; the tag matches them
    collective        has an MpiCollectiveBegin and -End within, if the name identifies the operation
    bytes, peer, comm of other kinds, and match: attributes of the enter

A communicator has the ranks that call on it, by number: more is not known. Needs the package otf2.
Format: Open Trace Format 2, VI-HPS; reading is in otf2_reading.py.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Ints
from lib_dlhpc.errors import SpecError
from lib_dlhpc.extras import installer
from lib_dlhpc.lifetime.files import replacing
from lib_dlhpc.timeline.kinds import KINDS, STREAMS
from lib_dlhpc.timeline.lanes import in_order, lanes
from lib_dlhpc.timeline.otf2_errors import as_os_errors
from lib_dlhpc.timeline.table import DEFAULTS, Timeline

ANCHOR = "traces.otf2"
TICKS = 10**9  # a second
# bytes that each location holds
CHUNKS = {"chunk_size_events": 2**18, "chunk_size_definitions": 2**22}
MOST = 2**62  # ticks: 146 years
OURS = "timeline of dlhpc"  # class of the root of the system tree
WORLD, COMM = "MPI_COMM_WORLD", "communicator "
ROLES = {
    "send": "POINT2POINT",
    "receive": "POINT2POINT",
    "collective": "COLL_OTHER",
    "communication": "DATA_TRANSFER",
    "input": "FILE_IO",
    "checkpoint": "FILE_IO",
    "wait": "ARTIFICIAL",
    "bubble": "ARTIFICIAL",
}
CALLS = ("send", "receive", "collective")
SEND, RECEIVE, COLLECTIVE = (KINDS.index(kind) for kind in CALLS)


def library() -> Any:
    """Return the module otf2. Raises SpecError where it is not installed."""
    try:
        import otf2
    except (ImportError, OSError) as error:
        raise SpecError(
            f"OTF2 archives need the package otf2, for Linux on x86-64: {installer('otf2')} ({error})."
        ) from None
    return otf2


def write_otf2(timeline: Timeline, path: Path) -> None:
    """Write an archive: made aside and then renamed, so that no half archive is ever seen.

    Replaces an archive that is there. Raises SpecError for anything else that is at `path`, for times that
    do not fit nanoseconds, and without the package otf2; OSError where nothing can be written.
    """
    otf2 = library()
    if path.exists() and not is_archive(path):
        raise SpecError(f"{path}: exists, and is not an OTF2 archive of dlhpc; it is not replaced.")
    start, stop, zero = _ticks(timeline, path)
    order = in_order(timeline, start, stop)
    table = timeline.select(order)
    with replacing(path, guarded=True) as temporary, as_os_errors(otf2, path):
        temporary.mkdir()
        archive = otf2.writer.Writer(str(temporary), **CHUNKS, timer_resolution=TICKS)
        try:
            _write(otf2, archive, table, (start[order], stop[order]), zero)
            archive.close()
        finally:
            # Otherwise its finalizer closes it again, and raises an error that nobody can catch.
            archive._handle = None


def is_archive(path: Path) -> bool:
    """Return whether a folder has what `write_otf2` makes, and nothing that would be lost with it."""
    names = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    return ANCHOR in names and names <= {ANCHOR, "traces.def", "traces"}


def _ticks(timeline: Timeline, path: Path) -> tuple[Ints, Ints, int]:
    """Return start and stop in ticks from zero on, and the tick that is zero: below 0 where a time is."""
    times = np.array([timeline.start, timeline.stop])
    if not (np.abs(times) < MOST / TICKS).all():
        raise SpecError(f"{path}: an event begins or ends later than {MOST / TICKS:.3g} s.")
    ticks = np.round(times * TICKS).astype(np.int64)
    zero = min(int(ticks.min(initial=0)), 0)
    return ticks[0] - zero, ticks[1] - zero, zero


def _write(otf2: Any, archive: Any, table: Timeline, ticks: tuple[Ints, Ints], zero: int) -> None:
    """Write rows that are in order, one lane after the other: within a lane time never goes back."""
    about = {"source": table.source, "ranks": str(table.ranks), "zero": str(zero)}
    lane = lanes(table, *ticks)
    place = np.stack([table.rank, table.stream, lane], axis=1).astype(np.int64)
    writers = _locations(otf2, archive, place, table.ranks, about)
    region = _regions(otf2, archive.definitions, table)
    enter, leave = _inner(otf2, archive.definitions, table, writers)
    note = _attributes(otf2, archive.definitions, table)
    begin, end = (column.tolist() for column in ticks)

    def close(writer: Any, row: int) -> None:
        leave(writer, row, end[row])
        writer.leave(end[row], region[row])

    by_lane = np.lexsort(place.T[::-1])  # stable: in order within each
    edges = np.flatnonzero(np.diff(place[by_lane], axis=0).any(axis=1)) + 1
    for rows in np.split(by_lane, edges) if len(table) else []:
        writer = writers[tuple(place[rows[0]].tolist())]
        going_on: list[int] = []
        for row in rows.tolist():
            while going_on and end[going_on[-1]] <= begin[row]:
                close(writer, going_on.pop())
            going_on.append(row)
            writer.enter(begin[row], region[row], note(row))
            enter(writer, row, begin[row])
        while going_on:
            close(writer, going_on.pop())


def _locations(
    otf2: Any, archive: Any, place: Ints, ranks: int, about: Mapping[str, str]
) -> dict[tuple[int, ...], Any]:
    """Return the event writers of each (rank, stream, lane), and of each rank's communication at least."""
    definitions = archive.definitions
    root = definitions.system_tree_node("machine", class_name=OURS)
    for name, value in about.items():
        definitions.system_tree_node_property(root, name, value=value)
    talk = STREAMS.index("communication")
    places = {tuple(row) for row in np.unique(place, axis=0).tolist()}
    places |= {(rank, talk, 0) for rank in range(ranks)}
    groups = [
        definitions.location_group(f"rank {rank}", system_tree_parent=root) for rank in range(ranks)
    ]
    writers: dict[tuple[int, ...], Any] = {}
    for rank, stream, lane in sorted(places):
        name = f"rank {rank} {STREAMS[stream]}" + (f" {lane + 1}" if lane else "")
        location = definitions.location(name, group=groups[rank])
        definitions.location_property(location, "stream", value=STREAMS[stream])
        writers[rank, stream, lane] = archive.event_writer_from_location(location)
    return writers


def _regions(otf2: Any, definitions: Any, table: Timeline) -> list[Any]:
    """Return the region of each row: one for each name of a kind."""
    keys, key = np.unique(
        table.name.astype(np.int64) * len(KINDS) + table.kind, return_inverse=True
    )
    made = []
    for name, kind in zip(*np.divmod(keys, len(KINDS)), strict=True):
        word = KINDS[kind]
        made.append(
            definitions.region(
                _text(table.names[name]),
                description=word,
                region_role=getattr(otf2.RegionRole, ROLES.get(word, "FUNCTION")),
                paradigm=otf2.Paradigm.MPI if word in CALLS else otf2.Paradigm.USER,
            )
        )
    return [made[number] for number in key.tolist()]


def _attributes(otf2: Any, definitions: Any, table: Timeline) -> Callable[[int], dict[Any, int]]:
    """Return a function that returns what no event within contains: match, and bytes, peer, comm of other kinds."""
    native = _native(otf2, table)
    made: dict[int, dict[Any, int]] = {}
    for name, missing in DEFAULTS.items():
        column = getattr(table, name)
        rows = np.flatnonzero((column != missing) & (~native if name != "match" else True))
        attribute = definitions.attribute(name, type=otf2.Type.INT64)
        for row, value in zip(rows.tolist(), column[rows].tolist(), strict=True):
            made.setdefault(row, {})[attribute] = value
    return lambda row: made.get(row, {})


def _native(otf2: Any, table: Timeline) -> NDArray[np.bool_]:
    """Return the mask of the rows that have MPI events within them."""
    ends = (table.peer >= 0) & (table.peer < table.ranks)
    known = np.array([operation(otf2, name) is not None for name in table.names], dtype=bool)
    named = known[table.name] if len(table) else np.zeros(0, dtype=bool)
    call = table.where("", "send", "receive") & ends
    return call | (table.where("", "collective") & named & (ends | (table.peer == -1)))


def operation(otf2: Any, name: str) -> Any:
    """Return the OTF2 operation of a collective call: MPI_Allreduce, MPI_Iallreduce and allreduce are one."""
    word = name.upper().removeprefix("MPI_").replace("_INIT", "")
    for guess in (word, word.removeprefix("I")):
        found = getattr(otf2.CollectiveOp, guess, None)
        if isinstance(found, otf2.CollectiveOp):
            return found
    return None


def _inner(
    otf2: Any, definitions: Any, table: Timeline, writers: Mapping[tuple[int, ...], Any]
) -> tuple[Callable[[Any, int, int], None], Callable[[Any, int, int], None]]:
    """Return two functions (writer, row, tick) that write the MPI events after an enter, before a leave."""
    native = _native(otf2, table)
    comms, place = _communicators(otf2, definitions, table, native, writers)
    tags = np.zeros(len(table), np.int64)
    paired = np.flatnonzero(native & (table.match >= 0) & table.where("", "send", "receive"))
    tags[paired] = np.unique(table.match[paired], return_inverse=True)[1] + 1
    kinds, natives, tag = table.kind.tolist(), native.tolist(), (tags % 2**31).tolist()
    peer, size, comm = table.peer.tolist(), table.bytes.tolist(), table.comm.tolist()
    name, operations = table.name.tolist(), [operation(otf2, name) for name in table.names]

    def enter(writer: Any, row: int, tick: int) -> None:
        if natives[row] and kinds[row] == SEND:
            other = place(comm[row], peer[row])
            writer.mpi_send(tick, other, comms[comm[row]], tag[row], size[row])
        elif natives[row] and kinds[row] == COLLECTIVE:
            writer.mpi_collective_begin(tick)

    def leave(writer: Any, row: int, tick: int) -> None:
        if natives[row] and kinds[row] == RECEIVE:
            other = place(comm[row], peer[row])
            writer.mpi_recv(tick, other, comms[comm[row]], tag[row], size[row])
        elif natives[row] and kinds[row] == COLLECTIVE:
            root = place(comm[row], peer[row]) if peer[row] >= 0 else otf2.CollectiveRoot.NONE.value
            given = operations[name[row]], comms[comm[row]], root, size[row], 0
            writer.mpi_collective_end(tick, *given)

    return enter, leave


def _communicators(
    otf2: Any,
    definitions: Any,
    table: Timeline,
    native: NDArray[np.bool_],
    writers: Mapping[Any, Any],
) -> tuple[dict[int, Any], Callable[[int, int], int]]:
    """Return the communicators by number, and a function that gives the number of a rank in one."""
    talk = STREAMS.index("communication")
    of_rank = [writers[rank, talk, 0]._location for rank in range(table.ranks)]
    mpi = {"paradigm": otf2.Paradigm.MPI}
    definitions.group("ranks", otf2.GroupType.COMM_LOCATIONS, members=tuple(of_rank), **mpi)
    members: dict[int, list[int]] = {0: list(range(table.ranks))}
    calls = table.select(native & (table.comm != 0))
    ends = np.concatenate([calls.rank, calls.peer]), np.concatenate([calls.comm, calls.comm])
    pairs = np.unique(np.stack(ends[::-1], axis=1)[ends[0] >= 0], axis=0)
    for number, rank in pairs.tolist():
        members.setdefault(number, []).append(rank)
    comms: dict[int, Any] = {}
    for number, ranks in members.items():
        name = WORLD if number == 0 else f"{COMM}{number}"
        locations = tuple(of_rank[rank] for rank in ranks)
        group = definitions.group(name, otf2.GroupType.COMM_GROUP, members=locations, **mpi)
        comms[number] = definitions.comm(name, group, parent=comms.get(0))
    at = {number: {rank: i for i, rank in enumerate(ranks)} for number, ranks in members.items()}
    return comms, lambda number, rank: at[number][rank]


def _text(name: str) -> str:
    """Return a name that C can hold."""
    return name.replace("\0", "?").encode(errors="replace").decode()
