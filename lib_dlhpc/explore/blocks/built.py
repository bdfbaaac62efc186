"""What pages need and nobody should write or commit: Vega as one file, and the drawings compiled to it.

Both come from installed packages (Altair, vl-convert) when they are first used and are kept in
~/.cache/lib_dlhpc, so that a visitor's kernel imports neither.

vega()            the file with Vega, for pages without a network
compiled(spec)    a Vega-Lite specification as Vega
drawings()        all drawings of this package by name, compiled; drawn() says whether they are kept
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from threading import RLock
from typing import Any

from lib_dlhpc.results import palette

PAGES = Path(__file__).parents[1]
OTHERS = 3  # versions of a kept file beside the one that is used
VEGA_LITE = "6.4"  # of those that vl-convert has
# Figures wait for dlhpcVega, or for this event when they are there first.
SNIPPET = """
import { View, parse, changeset, truthy } from "VEGA";
globalThis.dlhpcVega ??= { View, parse, changeset, truthy };
globalThis.dispatchEvent(new Event("dlhpc-vega"));
"""
# Colors of text and rules follow the page; nothing is painted behind the chart.
INK: dict[str, Any] = {"labelColor": "currentColor", "titleColor": "currentColor"}
THEME: dict[str, Any] = {
    "background": None,
    "aria": False,  # the figure as a whole has a label; one for each mark costs 2 ms a redraw
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "title": {"color": "currentColor", "anchor": "start"},
    "axis": {
        **INK,
        "labelFontSize": 12,
        "labelSeparation": 6,  # px: a narrow page leaves out labels that would touch
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "domainColor": "currentColor",
        "domainOpacity": 0.4,
        "tickColor": "currentColor",
        "tickOpacity": 0.4,
        "gridColor": "currentColor",
        "gridOpacity": 0.12,
    },
    "legend": {**INK, "labelFontSize": 12},
    "text": {"color": "currentColor", "fontSize": 12},
    "rule": {"color": "currentColor"},
}


def vega() -> Path:
    """Return the JavaScript module that defines dlhpcVega (0.6 MB); it is made when it is first asked for."""

    def make() -> str:
        import vl_convert

        # vl-convert has Vega inside, under the address where a page with a network would find it.
        page = vl_convert.vegalite_to_html({"mark": "bar"}, VEGA_LITE, bundle=False)
        address = page.split('src="')[1].split("@")[0]
        inside = f"{address}@{vl_convert.get_vega_version()}/+esm"
        return str(vl_convert.javascript_bundle(SNIPPET.replace("VEGA", inside), VEGA_LITE))

    return kept("vega", "js", version("vl-convert-python") + SNIPPET, make)


def compiled(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Vega-Lite specification as Vega, in this package's theme.

    Its usermeta says what the figure shows around it: title, table, datasets by name.
    """
    import vl_convert

    own = dict(spec)
    title, about = own.pop("title", ""), dict(own.pop("usermeta", {}))
    about |= {"title": title, "datasets": sorted(dataset_names(own))}
    config = {**THEME, **own.get("config", {})}
    done: dict[str, Any] = vl_convert.vegalite_to_vega({**own, "config": config}, VEGA_LITE)
    done.pop("background", None)
    return {**done, "usermeta": about}


@cache
def drawings() -> dict[str, dict[str, Any]]:
    """Return the drawings of all pages by name, compiled."""

    def make() -> str:
        from lib_dlhpc.explore.blocks.drawing import all_drawings

        return json.dumps({name: compiled(draw()) for name, draw in all_drawings().items()})

    found: dict[str, dict[str, Any]] = json.loads(
        kept("drawings", "json", _looks(), make).read_text(encoding="utf-8")
    )
    return found


def drawn() -> bool:
    """Whether the drawings are kept, so that no page waits for them."""
    return _place("drawings", "json", _looks()).exists()


@cache
def _looks() -> str:
    """What decides how a drawing looks: its code, the names in its charts, the palette."""
    files = [
        file for name in ("*drawing*", "*charts", "built") for file in PAGES.rglob(f"{name}.py")
    ]
    texts = [file.read_text(encoding="utf-8") for file in sorted([*files, Path(palette.__file__)])]
    return repr((texts, version("altair"), version("vl-convert-python")))


def kept(name: str, ending: str, key: str, make: Callable[[], str]) -> Path:
    """Return the kept file of this name whose making depended on `key`; make it if needed.

    The newest of other versions stay: a second checkout reads the same folder.
    """
    file = _place(name, ending, key)
    if not file.exists():
        with _alone(file.parent):
            if not file.exists():  # else another process has made it meanwhile
                _write(file, make())
    return file


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process at a time make files: it takes many seconds, and visitors of a class come together.

    The folder itself is locked, so that a process that is killed leaves no file. A maker may make what its file needs.
    """
    with _MAKING, ExitStack() as held:
        with suppress(ImportError, OSError):  # Windows, and some network file systems, have no lock
            if not _made_within:
                from fcntl import LOCK_EX, flock

                descriptor = os.open(folder, os.O_RDONLY)
                held.callback(os.close, descriptor)
                flock(descriptor, LOCK_EX)
        _made_within.append(folder)
        held.callback(_made_within.pop)
        yield


_MAKING = RLock()
_made_within: list[Path] = []  # one for each file that this process is making


def _write(file: Path, text: str) -> None:
    """Write a kept file, and remove the oldest of its other versions."""
    name, ending = file.stem.rpartition("-")[0], file.suffix
    others = sorted(_ages(file.parent.glob(f"{name}-*{ending}")), reverse=True)
    for _, old in others[OTHERS:]:
        old.unlink(missing_ok=True)
    handle, temporary = tempfile.mkstemp(dir=file.parent, suffix=f"{ending}.part")
    with open(handle, "w", encoding="utf-8") as out:
        out.write(text)
    os.replace(temporary, file)


def _ages(files: Iterable[Path]) -> Iterator[tuple[float, Path]]:
    """Yield the time and the path of each; one that another process removes meanwhile is left out."""
    for file in files:
        with suppress(FileNotFoundError):
            yield file.stat().st_mtime, file


def _place(name: str, ending: str, key: str) -> Path:
    return _folder() / f"{name}-{sha256(key.encode()).hexdigest()[:16]}.{ending}"


@cache
def _folder() -> Path:
    """Return where built files are kept; a folder of its own for this process where that cannot be written."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(home) / "lib_dlhpc"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return Path(tempfile.mkdtemp(prefix="lib_dlhpc-"))


def dataset_names(spec: Any) -> set[str]:
    """Names of the data that a Vega-Lite specification reads, at any depth."""
    names: set[str] = set()
    if isinstance(spec, Mapping):
        data = spec.get("data")
        if isinstance(data, Mapping) and isinstance(data.get("name"), str):
            names.add(data["name"])
        for key, value in spec.items():
            if key not in ("datasets", "usermeta"):
                names |= dataset_names(value)
    elif isinstance(spec, list):
        for item in spec:
            names |= dataset_names(item)
    return names


if __name__ == "__main__":
    vega()
    drawings()
