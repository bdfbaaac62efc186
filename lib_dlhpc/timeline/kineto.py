"""The traces of torch.profiler (Kineto), read: one file a rank, several files into one timeline.

The category (`cat`) and the arguments of an event define it:

    kernel, gpu_memset ...   stream compute, kind kernel: the accelerator's work, on whichever of its streams
    the same with "Collective name" in its arguments, and collective_comm
                             stream communication: send, receive (with Dst Rank, Src Rank), else collective;
                             bytes of what goes in; comm by process group, 0 being default_pg
    gpu_memcpy               stream input, kind region, of copies from the host; others as kernels
    cpu_op, user_annotation, python_function, cuda_runtime ...
                             stream host, kind region; stream compute where a file has no accelerator, with
                             its record_param_comms as communication, or where it has none, "gloo:" calls;
                             operators of ATen and of other libraries are kind kernel there, what wraps them is not
    ProfilerStep#            stream host, kind step
    enumerate(DataLoader)#   stream input, kind input; stream compute where a file has no accelerator

An accelerator's copies of the host's annotations are left out. Only where a kernel has no "Collective name",
as in older PyTorch, its own name decides: kind communication, with a note. A collective is matched by
its number in the process group ("Seq"), without one by counting, if all ranks' files have as many. Times are
those of the hosts' clocks.

Gloo carries its collectives out on threads of its own and annotates them there: from when a rank joined to when it was
through. It omits the process group, nor with whom a rank exchanges a message, nor when a receive was
through: collectives match where there is one group, messages never.
Format: pytorch/kineto, output_json.cpp; the arguments: PyTorch, torch/csrc/profiler/util.cpp; tried on PyTorch 2.13.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.units import count
from lib_dlhpc.timeline.files import Tell
from lib_dlhpc.timeline.json_events import JsonTrace, moment, number
from lib_dlhpc.timeline.kinds import KINDS, STREAMS
from lib_dlhpc.timeline.rows import MOST_TICKS, Rows
from lib_dlhpc.timeline.store import MOST_RANKS
from lib_dlhpc.timeline.table import Timeline

MARKS = {"schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds"}
DEVICE = {"kernel", "gpu_memset", "hpu_op", "mtia_ccp_events", "collective_comm"}
COPY, TO_DEVICE = {"gpu_memcpy"}, "Memcpy HtoD"
RUNTIMES = {
    f"{name}_{part}" for name in ("cuda", "xpu", "privateuse1") for part in ("runtime", "driver")
}
HOST = {"cpu_op", "user_annotation", "python_function", "mtia_runtime", "glow_runtime"} | RUNTIMES
REPEATED = {"gpu_user_annotation", "cuda_sync", "cuda_event"}
GLOO, STEP, LOADER = "gloo:", "ProfilerStep#", "enumerate(DataLoader)#"
# those wrap others, or wait for ranks
OPERATOR = re.compile(r"(?!autograd|torch|c10d|_c10d)\w+::\w")
NAMED = ("ncclKernel", "ncclDevKernel", "ncclDevFunc", "rcclKernel", "rcclDevKernel")
SIZES = {
    "bool": 1,
    **dict.fromkeys(("byte", "char", "int8", "uint8"), 1),
    **dict.fromkeys(("short", "int16", "uint16", "half", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int", "int32", "uint32", "float", "float32", "complexhalf"), 4),
    **dict.fromkeys(("long", "int64", "uint64", "double", "float64", "complexfloat"), 8),
    "complexdouble": 16,
}  # of PyTorch's types, as either of its ways writes them


@dataclass(frozen=True)
class _Call:
    """The arguments of a communication; `row` is its row, `file` the number of its file."""

    file: int
    row: int
    start: int
    kind: str
    name: str
    bytes: int
    peer: int
    group: tuple[bool, str, str] | None  # False is that of all ranks; name; ranks
    number: int | None


def is_kineto(trace: JsonTrace) -> bool:
    """Return whether what stands beside the events is what torch.profiler writes there."""
    return bool(MARKS & trace.about.keys())


def read_kineto(traces: Sequence[JsonTrace], tell: Tell) -> Timeline:
    """Return the timeline of the traces of some ranks, beginning at 0. Raises SpecError for what cannot be read."""
    rows, calls, ranks, world = Rows(ticks=True), list[_Call](), list[int](), 0
    for file, trace in enumerate(traces):
        calls += _read(rows, file, trace, tell)
        rank, size = _rank(trace, file, tell)
        if rank in ranks:
            other = traces[ranks.index(rank)].path
            raise SpecError(
                f"{trace.path}: is from rank {rank}, as is {other}; expected one file per rank."
            )
        ranks.append(rank)
        world = max(world, size, rank + 1)
    missing = sorted(set(range(world)) - set(ranks))
    if missing:
        some = ", ".join(map(str, missing[:8])) + (" ..." if missing[8:] else "")
        tell(f"Of {world:,} ranks these have no file, and no events: {some}.")
    groups = sorted({call.group for call in calls if call.group and call.group[0]})
    for call in calls:
        if call.group in groups:
            rows.columns["comm"][call.row] = groups.index(call.group) + 1
        if call.peer >= world:
            rows.columns["peer"][call.row] = -1
    _match(rows, calls, ranks, tell)
    try:
        table = rows.timeline(world, "measured", min(rows.columns["start"], default=0), 1e9)
    except SpecError as error:
        raise SpecError(f"{', '.join(str(trace.path) for trace in traces)}: {error}") from None
    return replace(table, rank=np.array(ranks, np.int32)[table.rank]).sorted()


def _read(rows: Rows, file: int, trace: JsonTrace, tell: Tell) -> list[_Call]:
    """Add the rows of a file; return what is known of its communication."""
    on_device, on_host, gloo = list[_Call](), list[_Call](), list[_Call]()
    first, has_device, operators = len(rows), False, list[int]()
    left_out, by_name, unknown = Counter[str](), 0, Counter[str]()
    for number_of, event in enumerate(trace.events()):
        category, name = str(event.get("cat", "none")), str(event.get("name", ""))
        if event.get("ph") != "X" or category not in DEVICE | COPY | HOST:
            left_out[category] += event.get("ph") == "X"
            continue
        args = event["args"] if isinstance(event.get("args"), dict) else {}
        named = "Collective name" in args
        guessed = category == "kernel" and not named and name.startswith(NAMED)
        try:
            start, stop = _times(trace, event)
            if named or guessed or category == "collective_comm":
                call = _call(file, len(rows), start, name, args)
                (on_host if category in HOST else on_device).append(call)
            elif category == "user_annotation" and name.startswith(GLOO):
                gloo.append(_of_gloo(file, len(rows), start, name, args))
            if category == "cpu_op" and OPERATOR.match(name):
                operators.append(len(rows))
            rows.add(file, *_place(category, name), name, start, stop)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise SpecError(f"{trace.path}: event {number_of}: {error}.") from None
        has_device |= category not in HOST
        by_name += guessed
        unknown[str(args.get("dtype"))] += named and not _size(args)
    if not has_device:
        _host_computes(rows, first, operators)
    if _about(trace).get("pg_count", 1) != 1:  # gloo omits the process group
        gloo = [replace(call, group=None) for call in gloo]
    calls = on_device if has_device else on_host or gloo
    for call in calls:
        _put(rows, call)
    for category, times in (+left_out).items():
        why = ", a copy of the host's" if category in REPEATED else ""
        tell(f"{trace.path}: left out: {count(times, 'event')} of category {category}{why}.")
    for dtype, times in (+unknown).items():
        tell(f"{trace.path}: {count(times, 'communication')} of dtype {dtype}: bytes not known.")
    if by_name:
        kernels = f"{count(by_name, 'kernel')} without 'Collective name'"
        tell(f"{trace.path}: {kernels} taken for communication by name.")
    return calls


def _place(category: str, name: str) -> tuple[str, str]:
    """Return stream and kind of an event that is no communication."""
    if category == "user_annotation" and name.startswith(STEP):
        return "host", "step"
    if category == "user_annotation" and name.startswith(LOADER):
        return "input", "input"
    if category in HOST:
        return "host", "region"
    return ("input", "region") if name.startswith(TO_DEVICE) else ("compute", "kernel")


def _host_computes(rows: Rows, first: int, operators: Sequence[int]) -> None:
    """Move what the host does, from row `first` on, to stream compute: there is no accelerator."""
    compute, step = STREAMS.index("compute"), KINDS.index("step")
    streams, kinds = rows.columns["stream"], rows.columns["kind"]
    for row in range(first, len(rows)):
        if kinds[row] != step:
            streams[row] = compute
    for row in operators:
        kinds[row] = KINDS.index("kernel")


def _times(trace: JsonTrace, event: Mapping[str, Any]) -> tuple[int, int]:
    """Return start and stop in nanoseconds of the host's clock: whole, as a float would not hold them."""
    base = trace.about.get("baseTimeNanoseconds", 0)
    start = number(base, "baseTimeNanoseconds") + int(moment(event.get("ts"), "ts") * 1000)
    stop = start + max(int(moment(event.get("dur", 0), "dur") * 1000), 0)
    if max(abs(start), abs(stop)) > MOST_TICKS:
        raise ValueError(
            f"from {start} to {stop} ns: legal: to {MOST_TICKS} ns from 0, or 146 years"
        )
    return start, stop


def _call(file: int, row: int, start: int, name: str, args: Mapping[str, Any]) -> _Call:
    what = str(args.get("Collective name", name))
    kind, end = {"send": ("send", "Dst Rank"), "recv": ("receive", "Src Rank")}.get(what, ("", ""))
    peer = args.get(end, -1)
    peer = peer if isinstance(peer, int) and 0 <= peer < MOST_RANKS else -1
    named = args.get("Process Group Name"), args.get("Process Group Description")
    group = None
    if named != (None, None):
        everyone = named[1] == "default_pg" or (not named[1] and named[0] in ("0", "default_pg"))
        ranks = str(args.get("Process Group Ranks", ""))
        group = (False, "", "") if everyone else (True, str(named[0] or named[1]), ranks)
    sequence = args.get("Seq")
    sequence = sequence if isinstance(sequence, int) else None
    size = _size(args) * max(_whole(args, "In msg nelems") or _whole(args, "Out msg nelems"), 0)
    kind = kind or ("collective" if "Collective name" in args else "communication")
    return _Call(file, row, start, kind, what, min(size, 2**62), peer, group, sequence)


def _of_gloo(file: int, row: int, start: int, name: str, args: Mapping[str, Any]) -> _Call:
    """Return what gloo annotates, as of the group of all ranks."""
    what, dims, dtype = (
        name.removeprefix(GLOO),
        _first(args, "Input Dims"),
        _first(args, "Input type"),
    )
    whole = isinstance(dims, list) and all(type(n) is int and n >= 0 for n in dims)
    size = math.prod(dims) * SIZES.get(str(dtype).lower(), 0) if whole and dims else 0
    message = what.startswith(("send", "recv"))
    kind, group = ("communication", None) if message else ("collective", (False, "", ""))
    return _Call(file, row, start, kind, what, min(size, 2**62), -1, group, None)


def _first(args: Mapping[str, Any], key: str) -> Any:
    """Return the entry of the first input; None where the profiler did not record shapes."""
    value = args.get(key)
    return value[0] if isinstance(value, list) and value else None


def _size(args: Mapping[str, Any]) -> int:
    """Return the bytes of an element, 0 where the type is not known."""
    dtype = str(args.get("dtype")).lower().removeprefix("c10::")
    return 1 if dtype.startswith("float8") else SIZES.get(dtype, 0)


def _whole(args: Mapping[str, Any], key: str) -> int:
    value = args.get(key, 0)
    return value if isinstance(value, int) else 0


def _put(rows: Rows, call: _Call) -> None:
    """Make a row that of a communication."""
    values = {
        "stream": STREAMS.index("communication"),
        "kind": KINDS.index(call.kind),
        "name": rows.names.setdefault(call.name, len(rows.names)),
        "bytes": call.bytes,
        "peer": call.peer,
    }
    for column, value in values.items():
        rows.columns[column][call.row] = value


def _about(trace: JsonTrace) -> Mapping[str, Any]:
    about = trace.about.get("distributedInfo")
    return about if isinstance(about, dict) else {}


def _rank(trace: JsonTrace, file: int, tell: Tell) -> tuple[int, int]:
    """Return the rank that a trace is of, and of how many."""
    about = _about(trace)
    rank, size = about.get("rank"), about.get("world_size", 0)
    if rank is None:
        tell(f"{trace.path}: does not state its rank (distributedInfo): taken as rank {file}.")
        return file, 0
    if not (type(rank) is type(size) is int and 0 <= rank < (size or MOST_RANKS) <= MOST_RANKS):
        raise SpecError(
            f"{trace.path}: distributedInfo: rank {rank!r} of {size!r}: expected a rank from 0 on, of at most"
            f" {MOST_RANKS:,}."
        )
    return rank, size


def _match(rows: Rows, calls: Sequence[_Call], ranks: Sequence[int], tell: Tell) -> None:
    """Give what belongs together one match: see the head of this file."""
    together: dict[Any, dict[int, list[_Call]]] = defaultdict(lambda: defaultdict(list))
    for call in sorted(calls, key=lambda call: call.start):
        if call.group and call.kind == "collective":
            together[call.group, call.name, call.number][call.file].append(call)
        elif call.peer >= 0:
            ends = (ranks[call.file], call.peer)
            ends = ends if call.kind == "send" else ends[::-1]
            together[call.group, ends, "messages"][call.kind == "send"].append(call)
    same, alone = 0, 0
    for (_, _, how), lists in together.items():
        lengths = {len(list_) for list_ in lists.values()}
        if (how is None and len(lengths) > 1) or (how == "messages" and len(lists) == 1):
            alone += sum(map(len, lists.values()))
            continue
        if how == "messages":
            alone += max(lengths) - min(lengths)
        for of_each in zip(*lists.values(), strict=False):
            for call in of_each:
                rows.columns["match"][call.row] = same
            same += 1
    if alone:
        tell(
            f"{count(alone, 'communication')} without match: other ranks' files have more, or none."
        )
