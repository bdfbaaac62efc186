"""What each lab hands in, what a hand-in may import, and how its checks are asked.

folder_of(name)     the folder of a lab
lab_of(name)        a lab: its row of the table, and its checks.py
"""

import importlib.util
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import lib_dlhpc
from lib_dlhpc.errors import SpecError, listed
from lib_dlhpc.extras import missing
from lib_dlhpc.labs.findings import Finding, seed_of
from lib_dlhpc.labs.grading import restarts
from lib_dlhpc.labs.grading.hand_in import TORCH_FILE
from lib_dlhpc.labs.repair_the_input.laws import loader_findings
from lib_dlhpc.labs.survive.checkpoint_interval import choice_findings
from lib_dlhpc.labs.survive.save_and_resume import restarts_of
from lib_dlhpc.labs.torch_ranks.world import installed
from lib_dlhpc.spec.experiment import loads

# Of Python: what computes. None of these reaches files, processes, the network, or the frames of a caller.
COMPUTES = (
    *(
        "__future__",
        "abc",
        "bisect",
        "cmath",
        "collections",
        "collections.abc",
        "copy",
        "dataclasses",
    ),
    *(
        "enum",
        "fractions",
        "functools",
        "heapq",
        "itertools",
        "json",
        "math",
        "numbers",
        "operator",
    ),
    *("random", "re", "statistics", "string", "time", "typing"),
    *("numpy", "numpy.linalg", "numpy.lib.stride_tricks"),
)
MPI = "mpi4py.MPI"
# Of PyTorch: what the labs need. A process has nothing that these could reach.
TORCH = (
    *("torch", "torch.autograd", "torch.func", "torch.nn", "torch.nn.functional", "torch.optim"),
    *("torch.nn.parallel", "torch.nn.utils", "torch.utils._pytree"),
    *("torch.distributed", "torch.distributed.device_mesh", "torch.distributed.fsdp"),
    *("torch.distributed.tensor", "torch.distributed.optim"),
)
Given = dict[str, Any]  # functions; in PyTorch, the world that runs them


class Lab(NamedTuple):
    """A lab that can be graded.

    names: functions that are handed in. laws: how many there are. judge(checks, given, name): all findings.
    again: findings on a hidden variant, without those that depend on the learner's own; None where all do.
    files: whether functions work on the files of folders. streams: functions that yield.
    torch: whether they are in PyTorch, and run in a world.
    usual: name of the file; a .toml has no code: it is its text that is judged, under the name `text`.
    """

    names: tuple[str, ...]
    laws: int
    imports: tuple[str, ...]
    judge: Callable[[Any, Given, str], Sequence[Finding]]
    again: Callable[[Any, Given, str], Sequence[Finding]] | None = None
    usual: str = "step.py"
    files: bool = False
    streams: tuple[str, ...] = ()
    torch: bool = False


def _step(checks: Any, given: Given, name: str) -> Sequence[Finding]:
    return list(checks.findings(given["step"], name))


def _pipeline(checks: Any, given: Given, name: str) -> Sequence[Finding]:
    return list(checks.findings(given["step"], given["gpipe"], given["one_f_one_b"], name))


def _all(checks: Any, given: Given, name: str) -> Sequence[Finding]:
    return list(checks.findings(given, name))


def _but_target(judge: Callable[..., Sequence[Finding]]) -> Callable[..., Sequence[Finding]]:
    """Return the findings without the target, for which a learner tunes to a machine of their own."""

    def untuned(checks: Any, given: Given, name: str) -> Sequence[Finding]:
        return [each for each in judge(checks, given, name) if each.law != checks.TARGET]

    return untuned


def _equal_to_one_rank(checks: Any, given: Given, name: str) -> Sequence[Finding]:
    """Return those of lab 2 that hold on any machine."""
    tuned = (checks.EARLY, checks.RUNS, checks.TARGET)
    return [each for each in checks.findings(given["step"], name) if each.law not in tuned]


def _choice(checks: Any, given: Given, name: str) -> Sequence[Finding]:
    """Return whether the choice in a file reaches the target. Raises SpecError where it is no experiment."""
    return [checks.Tuning(name).again(loads(given["text"]()))]


def _cuts(checks: Any, given: Given, name: str) -> Sequence[Finding]:
    ahead, back, rows_ahead, rows_back = (given[each] for each in checks.NAMES[:4])
    found = checks.filters_findings(ahead, back, name)
    return [*found, *checks.rows_findings(rows_ahead, rows_back, name)]


def _but_small(checks: Any, given: Given, name: str) -> Sequence[Finding]:
    """Return those of lab 6 without the small run, which is tuned to a cap of the learner's own."""
    formulas = (given[each] for each in ("state", "activations", "seconds"))
    return [
        *checks.formulas_findings(*formulas, name),
        *checks.estimate_findings(given["estimate"], checks.task_of(name)),
        *checks.choice_findings(given["choice"], name),
    ]


def _repairs(checks: Any, given: Given, name: str) -> Sequence[Finding]:
    """Return all of lab 7. A process does nothing between two calls, so there is no request to wait for."""
    own, both = checks.own_of(name), (given["prepare"], given["batches"])
    return [*checks.rate_findings(given["rate"], own), *loader_findings(*both, own, patience=0.0)]


def _survives(checks: Any, given: Given, name: str) -> Sequence[Finding]:
    """Return all of lab 8, of which training is here."""
    chosen = choice_findings(given["choice"], checks.own_of(name))
    paper, killed = _for_anyone(checks, given, name)
    return [*paper, *chosen, *killed]


def _but_choice(checks: Any, given: Given, name: str) -> Sequence[Finding]:
    paper, killed = _for_anyone(checks, given, name)
    return [*paper, *killed]


def _for_anyone(checks: Any, given: Given, name: str) -> tuple[list[Finding], list[Finding]]:
    formulas = given["expected_time"], given["best_interval"]
    paper = list(checks.formula_findings(*formulas, checks.own_of(name)))
    return paper, restarts.findings(given["save"], given["resume"], restarts_of(seed_of(name)))


def _in_torch(names: tuple[str, ...], laws: int) -> Lab:
    """Return the row of a lab in PyTorch, whose functions run by name in a world."""

    def judge(checks: Any, given: Given, name: str) -> Sequence[Finding]:
        return list(checks.torch_findings(given["world"], TORCH_FILE, name))

    return Lab(names, laws, TORCH, judge, judge, TORCH_FILE, torch=True)


FIT = ("state", "activations", "seconds", "estimate", "choice", "small", "small_peak")
SPLIT = ("filters_forward", "filters_backward", "rows_forward", "rows_backward", "answers")
SURVIVE = ("expected_time", "best_interval", "choice", "save", "resume")
REPAIR = ("rate", "prepare", "batches")
# What of these works on files is the checker's (inside/files.py).
FILES = (
    "io",
    "os",
    "os.path",
    "pathlib",
    "pickle",
    "shutil",
    "tempfile",
    "hashlib",
    "zlib",
    "lib_dlhpc.storage",
    "lib_dlhpc.storage.snapshots",
)
SERVE = ("cache", "step", "schedule", "forecast", "choose")
PREDICT = ("fit_messages", "fit_products", "terms", "band", "cause", "repaired")
LAY_OUT = ("step", "zigzag", "ring_attention", "memory", "seconds", "choose")
READ = (
    *("account", "late_senders", "collective_waits", "culprit"),
    *("critical_path", "dominates", "what_if"),
)
SIZE = ("adapters", "bits", "tuning", "state", "tokens", "choose")
FUSE = (
    *("matmul", "matmul_moved", "softmax"),
    *("attention", "attention_moved", "seconds", "longest"),
)
LABS = {
    "01_data_parallel_step": Lab(("step",), 7, (MPI,), _step, _step),
    "02_overlap": Lab(("step",), 8, (MPI,), _step, _equal_to_one_rank),
    "03_large_batch": Lab((), 1, (), _choice, usual="choice.toml"),
    "04_pipeline": Lab(
        ("step", "gpipe", "one_f_one_b"),
        10,
        (MPI, "lib_dlhpc.schedules.pipeline"),
        _pipeline,
        _but_target(_pipeline),
    ),
    "05_split_convolution": Lab(SPLIT, 8, (MPI,), _all, _cuts),
    "06_fit_the_model": Lab(FIT, 12, (), _all, _but_small),
    "07_repair_the_input": Lab(
        REPAIR, 11, FILES, _repairs, _repairs, files=True, streams=("batches",)
    ),
    "08_survive": Lab(SURVIVE, 10, FILES, _survives, _but_choice, files=True),
    "09_predict_your_cluster": Lab(PREDICT, 7, (), _all),
    "10_race_the_planner": Lab(("estimate", "planner", "bet"), 8, (), _all, _all),
    "11_serve_the_model": Lab(SERVE, 15, (), _all, _all),
    "12_lay_out_a_language_model": Lab(LAY_OUT, 16, (MPI,), _all, _all),
    "13_read_a_trace": Lab(READ, 13, (), _all, _all),
    "14_fuse_attention": Lab(FUSE, 14, (), _all, _all),
    "15_size_and_fit": Lab(SIZE, 7, (), _all, _all),
}
TORCH_LABS = {
    "01_data_parallel_step": _in_torch(("step", "ddp_step"), 14),
    "02_overlap": _in_torch(("attach",), 8),
    "04_pipeline": _in_torch(("step",), 8),
    "06_fit_the_model": _in_torch(("start", "step", "shard"), 13),
}


def folder_of(name: str) -> Path:
    """Return the folder of a lab, by its name or number: here, beside the package, or in an installed one.

    Raises SpecError where there is none.
    """
    name = Path(name).name
    if re.fullmatch("[0-9]{1,2}", name):  # 1 and 01 are 01_data_parallel_step
        name = next((lab for lab in LABS if lab[:3] == f"{int(name):02}_"), name)
    if name not in LABS:
        raise SpecError(listed(f"--lab {name}: there is no such lab;", name, LABS))
    package = Path(lib_dlhpc.__file__).parent
    for place in (Path.cwd(), package.parent, package / "course"):
        if (place / "labs" / name / "checks.py").is_file():
            return place / "labs" / name
    raise SpecError(
        f"--lab {name}: labs/{name}/checks.py is not here; run this in the repository's folder."
    )


def lab_of(name: str, torch: bool = False) -> tuple[Lab, ModuleType]:
    """Return a lab and its checks, by the name of its folder. torch: those in PyTorch.

    Raises SpecError where there is none, and where PyTorch is missing.
    """
    folder = folder_of(name)
    if not torch:
        return LABS[folder.name], _module(folder / "checks.py")
    if folder.name not in TORCH_LABS:
        legal = ", ".join(TORCH_LABS)
        raise SpecError(f"--torch: {folder.name} has no variant in PyTorch; legal: {legal}.")
    if not installed():
        raise SpecError(f"--torch: {missing('torch')}")
    before = sys.modules.get("checks")
    sys.modules["checks"] = _module(folder / "checks.py")  # those in PyTorch import them
    try:
        return TORCH_LABS[folder.name], _module(folder / "torch_checks.py")
    finally:
        del sys.modules["checks"]
        if before is not None:
            sys.modules["checks"] = before


def _module(file: Path) -> ModuleType:
    found = importlib.util.spec_from_file_location(f"{file.stem}_of_{file.parent.name}", file)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module
