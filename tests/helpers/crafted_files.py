"""Files crafted to exhaust a reader's memory, and a reader in its own process with measured memory."""

import io
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

LARGE = 250_000_000  # B that a crafted file unpacks to, or states
SAFE = 200  # MiB that reading it may take, Python and numpy included
_CHILD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))  # whatever happens, the machine is safe
{imports}
for statement in {statements!r}:
    try:
        exec(statement)
    except Exception as error:
        print(type(error).__name__, error)
    else:
        print("read")
if sys.platform == "linux":  # where getrusage counts the parent's memory as well
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(peak // 2**20)
"""


def reading(imports: str, *statements: str) -> tuple[list[str], int]:
    """Return what each statement raises, type and text ("read": nothing), and the most MiB their process had."""
    code = _CHILD.format(imports=imports, statements=statements)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    *said, peak = done.stdout.splitlines()
    return said, int(peak)


def zeros(size: int) -> Iterator[bytes]:
    """Yield `size` zero bytes."""
    block = bytes(1 << 22)
    for start in range(0, size, len(block)):
        yield block[: size - start]


def array(values: Sequence[Any] | np.ndarray) -> Iterator[bytes]:
    """Yield an array as numpy has it in a file."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(values))
    yield file.getvalue()


def stated(shape: tuple[int, ...], kind: Any, size: int) -> Iterator[bytes]:
    """Yield an array that states a shape and a type, and has `size` B of zeros."""
    file = io.BytesIO()
    about = {"descr": np.dtype(kind).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, about)
    yield file.getvalue()
    yield from zeros(size)


def archive(path: Path, members: Mapping[str, Iterator[bytes]]) -> Path:
    """Write a compressed .npz file of arrays, each by its name."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, pieces in members.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                for piece in pieces:
                    member.write(piece)
    return path
