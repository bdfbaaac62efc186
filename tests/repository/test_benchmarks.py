"""Every benchmark starts and comes to its end, with the peers that are here; none subtracts one clock from another.

Those that take longer come to it in make soak.
"""

import ast
import os
import runpy
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "benchmarks").glob("*.py"))
SCRIPTS = [file for file in FILES if not file.name.startswith("_")]
# The calibration of which is no part of what it measures; that of accuracy.py, which has the same, is run.
MACHINE = ROOT / "lib_dlhpc" / "catalog" / "measured" / "one_step.toml"
WORDS = {"compare_under_load": ["--machine", str(MACHINE)]}
# These take more than a CPU second with --quick, too.
LONGER = [
    "accuracy",
    "compare_under_load",
    "interaction",
    "io",
    "network",
    "packed_store",
    "planner",
    "snapshots",
    "trainer",
]
RUNS = [
    pytest.param(each, id=each.stem, marks=[pytest.mark.soak] if each.stem in LONGER else [])
    for each in SCRIPTS
]

PATIENCE = 300  # s; all of it is taken on a very busy machine only
# What a benchmark may need before it can say what is missing: Python, the package and what it depends on.
THERE = {"lib_dlhpc", "numpy", "simpy"} | sys.stdlib_module_names | {file.stem for file in FILES}
CLOCKS = {"time", "monotonic", "perf_counter", "process_time", "thread_time"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_all_that_it_imports_is_there(script, monkeypatch):
    monkeypatch.syspath_prepend(script.parent)
    assert callable(runpy.run_path(str(script), run_name=script.stem)["main"])


@pytest.mark.slow
@pytest.mark.parametrize("script", RUNS)
def test_it_runs_for_a_second(script):
    with TemporaryDirectory(prefix="b-") as place:  # short: browsers have sockets there
        run = subprocess.run(
            [sys.executable, script, "--quick", *WORDS.get(script.stem, [])],
            cwd=place,
            env={**os.environ, "TMPDIR": place},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert run.returncode == 0 and "Traceback" not in run.stderr, run.stdout + run.stderr
        assert run.stdout.strip()  # figures, or what is missing
        assert not os.listdir(place)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_it_starts_without_its_peers(script):
    """A peer is imported where it is used, so that its absence is a sentence and not the end."""
    for node in ast.parse(script.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
            assert {str(name).partition(".")[0] for name in names} <= THERE, ast.unparse(node)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_duration_is_of_one_clock(file):
    assert not mixed(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("took = time.perf_counter() - begin", True),
        ("took = time.process_time() - begin", False),
        ("took = clock - perf_counter_ns()", True),
        ("both = perf_counter() - wall, time.process_time() - cpu", False),
        ("both = perf_counter() - cpu, time.process_time() - wall", True),
    ],
)
def test_two_clocks_would_be_found(line, wrong):
    start = "begin = clock = time.process_time()\nwall, cpu = perf_counter(), time.process_time()\n"
    assert bool(mixed(start + line)) == wrong


def mixed(source: str) -> list[str]:
    """Return the differences of readings of two clocks; a name stands for what was last read into it above."""
    found = []
    for scope in ast.walk(ast.parse(source)):
        if not isinstance(scope, ast.Module | ast.FunctionDef):
            continue
        read: dict[str, str] = {}
        inside = [node for node in ast.walk(scope) if isinstance(node, ast.Assign | ast.BinOp)]
        for node in sorted(
            inside, key=lambda n: (n.end_lineno, n.end_col_offset, type(n) is ast.Assign)
        ):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    read |= readings(target, node.value)
            elif isinstance(node.op, ast.Sub):
                sides = [clock(x) or read.get(ast.unparse(x), "") for x in (node.left, node.right)]
                if all(sides) and sides[0] != sides[1]:
                    found.append(ast.unparse(node))
    return found


def readings(target: ast.expr, value: ast.expr) -> dict[str, str]:
    """Return by name which clock an assignment reads into it, "" for anything else."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = zip(target.elts, value.elts, strict=False)
    else:
        pairs = [(target, value)]
    return {ast.unparse(name): clock(what) for name, what in pairs}


def clock(node: ast.expr) -> str:
    """Return the clock that an expression reads, "" if it reads none."""
    if not isinstance(node, ast.Call):
        return ""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    name = name.removesuffix("_ns")
    return name if name in CLOCKS else ""
