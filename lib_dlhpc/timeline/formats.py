"""read and write: a timeline from and to any of the formats, selected by the file suffix.

.npz               our own columns (store.py)
.json, .json.gz    trace events of Chrome and Perfetto (chrome.py); read as well: those of
                   torch.profiler, one file a rank (kineto.py), and of XLA and TensorFlow, one file a
                   process (xla.py), whose HLO text (.txt) may be beside them
.sqlite            read: exports of Nsight Systems, one or several (nsight.py)
.otf2              an OTF2 archive, which is a folder with an anchor file in it (otf2.py)

A folder of .json and .json.gz files, or of .sqlite files, is one trace, its files in the order of their names.
"""

from collections.abc import Sequence
from pathlib import Path

from lib_dlhpc.errors import SpecError, listed
from lib_dlhpc.timeline.chrome import export_chrome, read_chrome
from lib_dlhpc.timeline.files import Tell, read_text
from lib_dlhpc.timeline.hlo import collective_sizes
from lib_dlhpc.timeline.json_events import EXPECTED, JsonTrace
from lib_dlhpc.timeline.kineto import is_kineto, read_kineto
from lib_dlhpc.timeline.nsight import read_nsight
from lib_dlhpc.timeline.otf2 import write_otf2
from lib_dlhpc.timeline.otf2_reading import read_otf2
from lib_dlhpc.timeline.store import load, save
from lib_dlhpc.timeline.table import Timeline
from lib_dlhpc.timeline.xla import is_xla, read_xla

FORMATS = {"columns": (".npz",), "chrome": (".json", ".json.gz"), "otf2": (".otf2",)}
HLO, NSIGHT = ".txt", ".sqlite"


def read(*paths: str | Path, tell: Tell = lambda sentence: None) -> Timeline:
    """Return the timeline in a file; in several, those of torch.profiler, XLA or Nsight Systems, one a rank.

    tell: receives a sentence for each thing that was assumed or omitted. Raises SpecError, which names the
    file and what was expected, for what cannot be read.
    """
    if not paths:
        raise SpecError("No trace is named.")
    every = [file for path in paths for file in _files(Path(path))]
    files = [path for path in every if not path.name.endswith(HLO)] or every
    texts = [path for path in every if path not in files]
    found = [_format_of(path) for path in files]
    if texts and set(found) != {"chrome"}:
        raise SpecError(f"{texts[0]}: HLO text; expected profiles of XLA (.json.gz) with it.")
    if set(found) == {"nsight"}:
        return read_nsight(files, tell)
    if len(files) > 1 and set(found) != {"chrome"}:
        other = files[[name == "chrome" for name in found].index(False)]
        raise SpecError(
            f"{other}: several files are traces of torch.profiler or XLA (.json), one a rank."
        )
    if found[0] == "columns":
        return load(files[0])
    if found[0] == "otf2":
        return read_otf2(files[0], tell)
    return _read_json(files, texts, tell)


def write(timeline: Timeline, path: str | Path, to: str = "") -> None:
    """Write a timeline in the format that the name ends in, or in the one named by `to`, atomically.

    Raises SpecError for a name that ends in no format and for a folder where a file is to be, OSError where
    nothing can be written.
    """
    path = Path(path)
    if to and to not in FORMATS:
        raise SpecError(listed(f"{to!r}:", to, FORMATS, "formats:"))
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
    if path.is_dir():
        return "otf2"
    return "nsight" if path.name.endswith(NSIGHT) else _by_name(path)


def _files(path: Path) -> list[Path]:
    """Return the timeline of a run folder, the files of a folder of traces, any other path as it is."""
    inside = path / "timeline.npz"
    if inside.is_file():
        return [inside]
    if path.is_dir() and not any(path.glob("*.otf2")):
        for of_trace in (FORMATS["chrome"], (NSIGHT,)):
            endings = (*of_trace, HLO)
            found = sorted(file for file in path.iterdir() if file.name.endswith(endings))
            if any(file.name.endswith(of_trace) for file in found):
                return found
        if not path.name.endswith(FORMATS["otf2"]):
            raise SpecError(
                f"{path}: a folder without a trace; expected files that end in {_endings()}, {NSIGHT}.{_below(path)}"
            )
    return [path]


def _below(folder: Path) -> str:
    """Return a sentence with the first subfolder that has traces: profilers nest them, JAX three folders deep."""
    endings = (*FORMATS["chrome"], *FORMATS["columns"], NSIGHT)
    nested = (file for depth in range(1, 4) for file in sorted(folder.glob("*/" * depth + "*")))
    found = next((file for file in nested if file.name.endswith(endings)), None)
    return f" There are some in {found.parent}." if found else ""


def _by_name(path: Path) -> str:
    for form, endings in FORMATS.items():
        if path.name.endswith(endings):
            return form
    hint = (
        " xprof turns such profiles into trace.json.gz." if path.name.endswith(".xplane.pb") else ""
    )
    raise SpecError(f"{path}: expected a name that ends in {_endings()}.{hint}")


def _endings() -> str:
    return ", ".join(ending for endings in FORMATS.values() for ending in endings)


def _read_json(files: Sequence[Path], texts: Sequence[Path], tell: Tell) -> Timeline:
    traces = [JsonTrace(path) for path in files]
    writers = [_writer(trace) for trace in traces]
    if "" in writers:
        raise SpecError(f"{files[writers.index('')]}: a trace of another program; {EXPECTED}.")
    if set(writers) == {"xla"}:
        sizes: dict[str, int] = {}
        for text in texts:
            sizes |= collective_sizes(read_text(text))
        return read_xla(traces, sizes, tell)
    if texts:
        raise SpecError(f"{texts[0]}: HLO text; expected profiles of XLA (.json.gz) with it.")
    if "xla" in writers:
        one = files[writers.index("xla")]
        raise SpecError(f"{one}: a profile of XLA; expected no traces of other programs with it.")
    if "dlhpc" not in writers:
        return read_kineto(traces, tell)
    if len(files) > 1:
        ours = files[writers.index("dlhpc")]
        raise SpecError(
            f"{ours}: has all its ranks; several files are of torch.profiler, one a rank."
        )
    return read_chrome(traces[0])


def _writer(trace: JsonTrace) -> str:
    """Return the writer of a trace, from its metadata or its processes; "": unknown."""
    for complete in (False, True):
        if complete:  # it may follow them
            for _ in trace.events():
                pass
        about = trace.about.get("otherData")
        if isinstance(about, dict) and "streams" in about:
            return "dlhpc"
        if is_kineto(trace):
            return "torch"
    return "xla" if is_xla(trace) else ""
