"""An interpreter that sees the standard library and chosen packages alone, as in an environment with no others."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

CORE = ("numpy", "tomli_w")
# Runs commands in one process, each with modules of its own: one whose import failed before would not be read again.
PROGRAM = """
import contextlib, io, json, sys
found = {}
for line in json.loads(sys.argv[1]):
    for name in [name for name in sys.modules if name.partition(".")[0] == "lib_dlhpc"]:
        del sys.modules[name]
    from lib_dlhpc.cli import main
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(line.split())
    found[line] = status, out.getvalue(), err.getvalue()
print(json.dumps(found))
"""


def linked(folder: Path, names: tuple[str, ...] = CORE) -> Path:
    """Fill a new folder with links to packages of this environment, and to the shared libraries beside them."""
    folder.mkdir()
    for name in names:
        (place,) = find_spec(name).submodule_search_locations
        for found in (Path(place), Path(place).with_name(f"{name}.libs")):
            if found.exists():
                (folder / found.name).symlink_to(found, target_is_directory=True)
    return folder


def bare(arguments: list[str], *places: Path, cwd: Path) -> str:
    """Run Python without site-packages, with modules of `places`; return its output. Fails if it fails."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places)), "HOME": str(cwd)}
    run = subprocess.run(
        [sys.executable, "-S", *arguments], env=env, cwd=cwd, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def commands(lines: list[str], *places: Path, cwd: Path) -> dict[str, tuple[int, str, str]]:
    """Return {line: (exit status, output, errors)} of command lines of dlhpc, in such an interpreter."""
    return json.loads(bare(["-c", PROGRAM, json.dumps(lines)], *places, cwd=cwd))
