"""Work: a pure function of a chunk's number, as text that any process can read; results of chunks in a folder."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.errors import SpecError
from lib_dlhpc.lifetime.files import replacing, write_text
from lib_dlhpc.spec.experiment import Experiment, dumps, loads

Arrays: TypeAlias = dict[str, NDArray[Any]]
WORK = "work.json"
_read = lru_cache(maxsize=2)(loads)  # a process reads it once for all its chunks
_here = WeakValueDictionary[str, Experiment]()


@dataclass(frozen=True)
class Work:
    """Chunks to be done.

    function: "module:name", called with `arguments` and a chunk's number; it returns named arrays, without objects.
    arguments: plain values, as in JSON. chunks: how many.
    """

    function: str
    arguments: Mapping[str, Any]
    chunks: int

    def run(self, number: int) -> Arrays:
        """Do a chunk; return its result."""
        module, _, name = self.function.partition(":")
        result: Arrays = getattr(import_module(module), name)(self.arguments, number)
        return result


def text_of(experiment: Experiment) -> str:
    """Return an experiment as TOML, from which `experiment_of` returns the same object in this process."""
    text = dumps(experiment)
    _here[text] = experiment
    return text


def experiment_of(text: str) -> Experiment:
    """Return the experiment of a TOML text."""
    return _here.get(text) or _read(text)


def part(size: int, number: int, total: int) -> tuple[int, int]:
    """Return from where to where a chunk reaches, in chunks of `size`; the last one may be shorter."""
    return number * size, min((number + 1) * size, total)


def do(work: Work, number: int, folder: str | None = None) -> Arrays:
    """Return the result of a chunk; with a folder, from its file there, which is written first where it is missing."""
    if folder is None:
        return work.run(number)
    path = file_of(Path(folder), number)
    if not path.exists():
        result = work.run(number)
        with replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, **result)  # type: ignore[arg-type]  # the stub takes a name for allow_pickle
        return result
    with np.load(path) as held:
        return {name: held[name] for name in held.files}


def file_of(folder: Path, number: int) -> Path:
    """Return the file of a chunk's result."""
    return folder / f"chunk-{number:06d}.npz"


def open_folder(folder: Path, work: Work) -> None:
    """Make a folder for results of chunks, or resume in one with the same work. Raises SpecError for other work."""
    text = json.dumps(asdict(work))
    try:
        if not (folder / WORK).exists():
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise SpecError(
                    f"{folder}: is not empty, and holds no chunks; name another folder."
                )
            write_text(folder / WORK, text)
        elif (folder / WORK).read_text("utf-8") != text:
            raise SpecError(
                f"{folder}: holds chunks of other work; name another folder, or remove it."
            )
    except OSError as error:
        raise SpecError(f"{folder}: {error.strerror}.") from None


def read_work(folder: Path) -> Work:
    """Return the work that a folder holds."""
    return Work(**json.loads((folder / WORK).read_text("utf-8")))
