"""What every test shares: the repository's place, and one rule for components a machine may lack.

On a laptop a test whose component is missing (a browser, a batch system) is skipped. With
DLHPC_REQUIRE_ALL=1, as continuous integration sets it, any skip is a failure: a suite that
quietly stopped looking must not stay green.
"""

import asyncio
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

# Tests start hundreds of programs. Where none may write bytecode beside its source, they share a folder of it:
# else each would compile the package again, which takes longer than most of what it is started for.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    user = getattr(os, "getuid", lambda: "")()
    os.environ.setdefault(
        "PYTHONPYCACHEPREFIX", str(Path(tempfile.gettempdir(), f"dlhpc-bytecode-{user}"))
    )
    sys.dont_write_bytecode, sys.pycache_prefix = False, os.environ["PYTHONPYCACHEPREFIX"]

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from idle_sleeps import sleep_longer
from lanes import lane_of, order_of
from turns import turn, turn_of

# Their failed assertions are told with values, as those of tests are.
pytest.register_assert_rewrite("experiment_page", "lab_answers", "lesson_page", "module_text")

# The same examples on every machine and every day; no verdict from a busy machine's clock.
settings.register_profile("lib_dlhpc", derandomize=True, deadline=None, max_examples=25)
settings.load_profile("lib_dlhpc")

# Hypothesis also draws constants that it reads in the sources of all loaded modules: examples would depend on what was
# imported before, and reading 1,500 files takes each worker seven seconds.
if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = Constants

# Tests write thousands of small files: where memory has a file system with room, none of them waits for a disk.
MEMORY, ROOM = Path("/dev/shm"), 4e9  # B
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY / f"dlhpc-{os.getuid()}")
    Path(tempfile.tempdir).mkdir(exist_ok=True)
    Path(tempfile.tempdir).chmod(0o711)  # others may pass, since some tests run as nobody

# The user who runs the tests may have joined a class: tests write nothing into that record.
os.environ["DLHPC_LEARNER"] = str(Path(tempfile.gettempdir(), f"dlhpc-nobody-{os.getpid()}"))

# Workers of the tests share the cores: two threads of BLAS that wait for each other in small products hold both.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# For the same reason ranks that wait sleep, also where there are no more of them than cores (lib_dlhpc.launch.mpi).
os.environ.setdefault("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")
os.environ.setdefault("MPIR_CVAR_POLLS_BEFORE_YIELD", "10")
sleep_longer()

# A shell lets what it starts in the background ignore Ctrl-C, nohup a hangup, and so would every program that a
# test ends that way.
for name, handler in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL)):
    if (number := getattr(signal, name, None)) and signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


# What is collected lives to the end. Looking through 20,000 tests and the caches of the package for garbage, again
# and again, would take a tenth of the time of all tests.
YOUNG, MIDDLE, OLD = 20_000, 10, 100  # of gc.set_threshold; Python's own: 700, 10, 10


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    if notebooks := {item.path for item in session.items if item.path.suffix == ".ipynb"}:
        from notebooks import fork_kernels

        fork_kernels(notebooks)
    gc.freeze()  # without a search: next to nothing of it is garbage
    gc.set_threshold(YOUNG, MIDDLE, OLD)


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """Leave no garbage to pytest's search at the end: xdist interrupts a worker that takes over 5 s to end."""
    gc.freeze()


def require_all() -> bool:
    return os.environ.get("DLHPC_REQUIRE_ALL") == "1"


@pytest.fixture(scope="session")
def repository() -> Path:
    """The top of the repository."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def require() -> Callable[[object, str], None]:
    """A function: `require(shutil.which("chromium"), "no chromium")` skips, or fails if told to."""

    def require(present: object, reason: str) -> None:
        if not present:
            (pytest.fail if require_all() else pytest.skip)(reason)

    return require


@pytest.fixture(scope="session")
def ranks_can_start(require: Callable[[object, str], None]) -> None:
    """Skips, or fails if nothing may be skipped, where no MPI ranks can be started."""
    from lib_dlhpc.errors import SpecError
    from lib_dlhpc.launch.mpi import mpiexec

    try:
        mpiexec()
    except SpecError as error:
        require(False, str(error))


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's calibration and list of jobs are not the test's."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_state: None) -> None:
    """Nor is the current folder."""
    monkeypatch.chdir(tmp_path)


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if require_all() and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"DLHPC_REQUIRE_ALL=1 allows no skip, but: {reason}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # beside another worker
        items.sort(key=lambda item: order_of(item.path, Path(__file__).parent))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With --dist loadfile a folder that is a lane is one unit of work, as is every other file."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Lanes(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return lane_of(nodeid)

    return Lanes(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    kind = _turn_of(item.path)
    with turn(kind, _locks() if kind else Path()), _no_browser_loop(item.path):
        return (yield)


@cache
def _turn_of(path: Path) -> str:
    return turn_of(path, Path(__file__).parent)


@cache
def _locks() -> Path:
    """Return the folder of the locks of this run of the tests."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    place = Path(tempfile.gettempdir()) / f"dlhpc-tests-{run}"
    place.mkdir(parents=True, exist_ok=True)
    return place


@contextmanager
def _no_browser_loop(test: Path) -> Iterator[None]:
    """Outside tests/browser no event loop runs: that of a worker's open browser would pass for a kernel's."""
    loop = asyncio._get_running_loop() if test.parent.name != "browser" else None
    if loop is None:
        yield
        return
    asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(None if loop.is_closed() else loop)


@pytest.fixture
def without_meeting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Price each exchange as if alone on its links, for runs that are described within the test."""
    from lib_dlhpc.parallel import step
    from lib_dlhpc.program import fold
    from lib_dlhpc.program.program import Program

    monkeypatch.setattr(fold.Shape, "crossing", lambda *_: None)
    monkeypatch.setattr(Program, "shares", None)
    step._blocks.cache_clear()
    yield
    step._blocks.cache_clear()
