"""read and write: a timeline from and to any of the formats, selected by the file suffix.

.npz               our own columns (store.py)
.json, .json.gz    trace events of Chrome and Perfetto (chrome.py); read as well: those of
                   torch.profiler, one file a rank (kineto.py)
.otf2              an OTF2 archive, which is a folder with an anchor file in it (otf2.py)
"""

from collections.abc import Sequence
from pathlib import Path

from lib_dlhpc.errors import SpecError, suggest
from lib_dlhpc.timeline.chrome import export_chrome, read_chrome
from lib_dlhpc.timeline.files import Tell
from lib_dlhpc.timeline.json_events import EXPECTED, JsonTrace
from lib_dlhpc.timeline.kineto import is_kineto, read_kineto
from lib_dlhpc.timeline.otf2 import write_otf2
from lib_dlhpc.timeline.otf2_reading import read_otf2
from lib_dlhpc.timeline.store import load, save
from lib_dlhpc.timeline.table import Timeline

FORMATS = {"columns": (".npz",), "chrome": (".json", ".json.gz"), "otf2": (".otf2",)}


def read(*paths: str | Path, tell: Tell = lambda sentence: None) -> Timeline:
    """Return the timeline in a file; in several, those of torch.profiler, one a rank.

    tell: receives a sentence for each thing that was assumed or omitted. Raises SpecError, which names the
    file and what was expected, for what cannot be read.
    """
    if not paths:
        raise SpecError("No trace is named.")
    files = [_in_run(Path(path)) for path in paths]
    found = [_format_of(path) for path in files]
    if len(files) > 1 and set(found) != {"chrome"}:
        other = files[[name == "chrome" for name in found].index(False)]
        raise SpecError(f"{other}: several files are traces of torch.profiler (.json), one a rank.")
    if found[0] == "columns":
        return load(files[0])
    if found[0] == "otf2":
        return read_otf2(files[0], tell)
    return _read_json(files, tell)


def write(timeline: Timeline, path: str | Path, to: str = "") -> None:
    """Write a timeline in the format that the name ends in, or in the one named by `to`, atomically.

    Raises SpecError for a name that ends in no format and for a folder where a file is to be, OSError where
    nothing can be written.
    """
    path = Path(path)
    if to and to not in FORMATS:
        raise SpecError(f"{to!r}: formats: {', '.join(FORMATS)}.{suggest(to, FORMATS)}")
    form = to or _by_name(path)
    if form != "otf2" and path.is_dir():
        raise SpecError(f"{path}: a folder; expected the name of a file.")
    if form == "columns":
        save(timeline, path)
    elif form == "otf2":
        write_otf2(timeline, path)
    else:
        export_chrome(timeline, path)


def _format_of(path: Path) -> str:
    if not path.exists():
        raise SpecError(f"{path}: no such file.")
    return "otf2" if path.is_dir() else _by_name(path)


def _in_run(path: Path) -> Path:
    """Return the timeline of a run folder, any other path as it is."""
    inside = path / "timeline.npz"
    return inside if inside.is_file() else path


def _by_name(path: Path) -> str:
    for form, endings in FORMATS.items():
        if path.name.endswith(endings):
            return form
    raise SpecError(f"{path}: expected a name that ends in {_endings()}.")


def _endings() -> str:
    return ", ".join(ending for endings in FORMATS.values() for ending in endings)


def _read_json(files: Sequence[Path], tell: Tell) -> Timeline:
    traces = [JsonTrace(path) for path in files]
    writers = [_writer(trace) for trace in traces]
    if "" in writers:
        raise SpecError(f"{files[writers.index('')]}: a trace of another program; {EXPECTED}.")
    if "dlhpc" not in writers:
        return read_kineto(traces, tell)
    if len(files) > 1:
        ours = files[writers.index("dlhpc")]
        raise SpecError(
            f"{ours}: has all its ranks; several files are of torch.profiler, one a rank."
        )
    return read_chrome(traces[0])


def _writer(trace: JsonTrace) -> str:
    """Return the writer of a trace, from its metadata; "": unknown."""
    for complete in (False, True):
        if complete:  # it may follow them
            for _ in trace.events():
                pass
        about = trace.about.get("otherData")
        if isinstance(about, dict) and "streams" in about:
            return "dlhpc"
        if is_kineto(trace):
            return "torch"
    return ""
