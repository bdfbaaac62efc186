"""The profiles of XLA (JAX), read in their Chrome form, *.trace.json.gz: one file a process.

    an event with hlo_op      stream compute, kind kernel; stream communication, kind collective, where its
                              operation is one. A device of a process (its name, or device_ordinal) is a rank.
    step_num                  stream host, kind step: jax.profiler.StepTraceAnnotation
    "input"                   stream input, kind input: jax.profiler.TraceAnnotation("input")

Other events of the host are left out. Of an accelerator's rows those named "Stream #" are read, else "XLA Ops".
A profile in which no event has an hlo_op is TensorFlow's: tensorflow.py says what differs.
The profile omits ranks, which are taken in the order of the files, and a clock that processes share: each
file begins at 0, until the ends of collectives, which all ranks leave together, put them on that of rank 0.
A profile of processors also omits sizes; the HLO text of the module (hlo.py) has them.
Tried on JAX 0.10, on processors.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lib_dlhpc.errors import SpecError
from lib_dlhpc.timeline.collective_clock import match_by_name, one_clock
from lib_dlhpc.timeline.collective_names import collective_name
from lib_dlhpc.timeline.files import Tell
from lib_dlhpc.timeline.hlo import is_collective
from lib_dlhpc.timeline.json_events import JsonTrace, moment
from lib_dlhpc.timeline.rows import Rows
from lib_dlhpc.timeline.table import Timeline
from lib_dlhpc.timeline.tensorflow import Row, row_of

PROCESSES = ("/host:", "/device:")
INPUT = "input"
NO_SIZES = "Sizes of collectives are not known: expected the HLO text of the module (.txt) as well."
Place = tuple[int, str]  # file, device


def is_xla(trace: JsonTrace) -> bool:
    """Return whether the events are of processes that XLA's profiler names."""
    for event in trace.events():
        if event.get("name") == "process_name":
            return str(_args(event).get("name", "")).startswith(PROCESSES)
    return False


def read_xla(traces: Sequence[JsonTrace], sizes: Mapping[str, int], tell: Tell) -> Timeline:
    """Return the timeline of the profiles of some processes.

    sizes: bytes by the name of an HLO operation, where the profile does not have them. Raises SpecError for
    what cannot be read.
    """
    rows, places = Rows(ticks=True), dict[Place, int]()
    compiled = any("hlo_op" in _args(event) for trace in traces for event in trace.events())
    for file, trace in enumerate(traces):
        _read(rows, file, trace, sizes if compiled else None, places)
    if not places:
        raise SpecError(
            f"{traces[0].path}: no operation of XLA or of TensorFlow in it: no event has an hlo_op, or its type in a"
            " long_name."
        )
    if len(traces) > 1:
        tell("Profiles of XLA name no rank: ranks are in the order of the files.")
    table = rows.timeline(len(places), "measured", 0, 1e9)
    talk = table.where("communication")
    if (table.bytes[talk] == 0).any():
        tell(NO_SIZES if compiled else "Profiles of TensorFlow have no sizes of collectives.")
    return one_clock(match_by_name(table), [file for file, _ in places]).sorted()


def _read(
    rows: Rows,
    file: int,
    trace: JsonTrace,
    sizes: Mapping[str, int] | None,
    places: dict[Place, int],
) -> None:
    """Add the rows of a file; those of its host are of each of its devices. sizes: None for TensorFlow's."""
    labels = _labels(trace)
    of_host = []
    own = set[int]()
    for number_of, event in enumerate(trace.events()):
        if event.get("ph") != "X":
            continue
        args, name = _args(event), str(event.get("name", ""))
        try:
            start = int(moment(event.get("ts"), "ts") * 1000)
            stop = start + max(int(moment(event.get("dur", 0), "dur") * 1000), 0)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise SpecError(f"{trace.path}: event {number_of}: {error}.") from None
        if "step_num" in args:
            number = str(args["step_num"])
            step = name if name.endswith(f" {number}") else f"{name} {number}"
            of_host.append((start, stop, Row("host", "step", step)))
        elif name == INPUT:
            of_host.append((start, stop, Row("input", "input", name)))
        elif row := _row(event, name, args, sizes, labels):
            if row.stream == "input":
                of_host.append((start, stop, row))
                continue
            process = labels.processes.get(str(event.get("pid")), "")
            device = process if "/device:" in process else str(args.get("device_ordinal", ""))
            rank = places.setdefault((file, device), len(places))
            own.add(rank)
            rows.add(rank, row.stream, row.kind, row.name, start, stop, bytes=row.bytes)
    for rank in sorted(own):
        for start, stop, row in of_host:
            rows.add(rank, row.stream, row.kind, row.name, start, stop, bytes=row.bytes)


def _row(
    event: Mapping[str, Any],
    name: str,
    args: Mapping[str, Any],
    sizes: Mapping[str, int] | None,
    labels: "_Labels",
) -> Row | None:
    """Return the row of an operation; None: the event is left out."""
    process, thread = str(event.get("pid")), str(event.get("tid"))
    chosen = labels.chosen.get(process)
    if sizes is None:
        of_thread = labels.threads.get(process, {}).get(thread, "")
        on_stream = chosen is not None and thread in chosen
        return row_of(name, args, of_thread, on_stream, bool(labels.chosen))
    if "hlo_op" not in args or (chosen is not None and thread not in chosen):
        return None
    operation = str(args["hlo_op"])
    if not is_collective(operation):
        return Row("compute", "kernel", name)
    return Row("communication", "collective", collective_name(operation), sizes.get(operation, 0))


class _Labels(NamedTuple):
    """Names of processes, of their threads, and the threads of each accelerator that are read."""

    processes: dict[str, str]
    threads: dict[str, dict[str, str]]
    chosen: dict[str, set[str]]


def _labels(trace: JsonTrace) -> _Labels:
    names, threads = dict[str, str](), dict[str, dict[str, str]]()
    for event in trace.events():
        if event.get("ph") == "M" and event.get("name") == "process_name":
            names[str(event.get("pid"))] = str(_args(event).get("name", ""))
        elif event.get("ph") == "M" and event.get("name") == "thread_name":
            name = str(_args(event).get("name", ""))
            threads.setdefault(str(event.get("pid")), {})[str(event.get("tid"))] = name
    chosen = {}
    for process, name in names.items():
        of_it = threads.get(process, {})
        streams = {thread for thread, label in of_it.items() if label.startswith("Stream #")}
        streams = streams or {thread for thread, label in of_it.items() if label == "XLA Ops"}
        if "/device:" in name and streams:
            chosen[process] = streams
    return _Labels(names, threads, chosen)


def _args(event: Mapping[str, Any]) -> Mapping[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}
