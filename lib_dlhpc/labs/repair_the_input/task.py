"""A learner's slow input: the samples, the script that reads them, and the run on a shared file system it belongs to.

task_of(seed)                    all of it as numbers: the samples here, the large run, the script's faults
make_folder(own, folder)         the samples as files; expected(own, run): what a loader of a run has to give
original(own)                    the script as text; loaded(text): its functions
experiment_of(own, ...)          the large run with a loader that asks for so much a sample
rate_finding(rate, own)          whether a learner's formula is the library's
"""

import linecache
import random
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.labs.findings import Finding
from lib_dlhpc.labs.formula_cases import CLOSE, Case, compared
from lib_dlhpc.prediction.storage.io import reading
from lib_dlhpc.sentences import sentences
from lib_dlhpc.spec.experiment import Experiment

say = sentences(__file__)

ENDING = ".img"
OTHER = "labels.txt"  # a file that is no sample
EPOCHS = 3
ALONE = "Your formula: what one reader waits for, and many readers"
TOGETHER = "Your formula: what all readers share"
FAULTS = ("list each batch", "look twice", "open twice", "small reads", "decode twice")


class InputTask(NamedTuple):
    """A learner's samples, script and large run; s, B, and operations a second of all readers."""

    seed: int
    classes: int
    samples: int
    batch: int
    faults: tuple[str, ...]
    nodes: int  # of the large run, four GPUs each
    speed: float  # samples/s of a GPU that does not wait
    sample: float  # B
    decode: float  # s
    operation_latency: float
    read_latency: float
    reader_bandwidth: float
    metadata_rate: float
    bandwidth: float

    @property
    def readers(self) -> int:
        """One a GPU."""
        return 4 * self.nodes


class Run(NamedTuple):
    """What a loader is given: how long to read, the part of its rank; decode(data) gives a sample of a file's bytes.

    comm: of mpi4py where ranks are real, else None.
    """

    epochs: int
    batch: int
    seed: int
    rank: int
    ranks: int
    decode: Callable[[bytes], Any]
    comm: Any = None


@cache
def task_of(seed: int) -> InputTask:
    """Return a learner's own task."""
    rng = np.random.default_rng([seed, 7])

    def one(*values: float) -> float:
        return float(rng.choice(values))

    batch = int(rng.choice([12, 16, 18]))
    samples = int(11 * batch + rng.integers(1, batch))
    samples += samples % 3 == 0  # three ranks have unequal parts
    faults = tuple(FAULTS[k] for k in sorted(rng.permutation(len(FAULTS))[:3]))
    return InputTask(
        seed,
        int(rng.integers(4, 8)),
        samples,
        batch,
        faults,
        int(rng.choice([8, 16])),
        one(300, 400, 500),
        one(80e3, 110e3, 150e3),
        one(2e-4, 4e-4),
        one(5e-4, 8e-4),
        one(1e-3, 2e-3, 5e-3),
        one(0.8e9, 1e9),
        one(10e3, 20e3, 40e3),
        one(10e9, 20e9),
    )


def decoded(data: bytes) -> np.ndarray:
    """Return the sample that a file's bytes stand for. Raises ValueError where they stand for none."""
    try:
        return np.frombuffer(zlib.decompress(data), np.uint8)
    except zlib.error:
        words = f"these {len(data)} bytes are not a sample. Samples are the files *{ENDING}; {OTHER} is not one."
        raise ValueError(f"run.decode(data): {words}") from None


@cache
def contents(own: InputTask) -> dict[str, bytes]:
    """Return the bytes of each sample's file by its name, CLASS/SAMPLE.img, sorted."""
    rng = np.random.default_rng([own.seed, 8])
    found = {}
    for number in range(own.samples):
        kind = number if number < own.classes else int(rng.integers(own.classes))
        pixels = rng.integers(0, 8, int(rng.integers(1500, 5000)), np.uint8)
        name = f"{kind:02d}/{int(rng.integers(10**6)):06d}-{number:03d}{ENDING}"
        found[name] = zlib.compress(pixels.tobytes(), 1)
    return dict(sorted(found.items()))


def make_folder(own: InputTask, folder: Path) -> None:
    """Write the samples below a new folder, and beside them a file that is none."""
    for name, data in contents(own).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / OTHER).write_text("\n".join(f"class {k}" for k in range(own.classes)) + "\n")


def order(own: InputTask, run: Run, epoch: int) -> list[str]:
    """Return the names of a rank's samples in an epoch, in their order."""
    names = list(contents(own))
    random.Random(run.seed + epoch).shuffle(names)
    return names[run.rank :: run.ranks]


def expected(own: InputTask, run: Run) -> Iterator[list[np.ndarray]]:
    """Yield the batches of a run as the script gives them."""
    for epoch in range(run.epochs):
        names = order(own, run, epoch)
        for first in range(0, len(names), run.batch):
            yield [decoded(contents(own)[name]) for name in names[first : first + run.batch]]


def original(own: InputTask) -> str:
    """Return the learner's script."""
    has = own.faults.__contains__
    often = "        " if has("list each batch") else ""
    listing = [
        "names = []",
        "for kind in sorted(os.listdir(target)):",
        "    if os.path.isdir(os.path.join(target, kind)):",
        "        for name in sorted(os.listdir(os.path.join(target, kind))):",
        '            names.append(f"{kind}/{name}")',
        "random.Random(run.seed + epoch).shuffle(names)",
        "names = names[run.rank :: run.ranks]",
    ]
    lines = [
        "import os",
        "import random",
        "import shutil",
        "",
        "",
        "def prepare(folder, target):",
        "    shutil.copytree(folder, target)",
        "",
        "",
        "def load(target, name, run):",
        *(f"    {line}" for line in _load_lines(own)),
        "",
        "",
        "def list_names(target, epoch, run):",
        *(f"    {line}" for line in listing),
        "    return names",
        "",
        "",
        "def batches(target, run):",
        "    for epoch in range(run.epochs):",
        "        names = list_names(target, epoch, run)",
        "        for first in range(0, len(names), run.batch):",
        *([f"{often}    names = list_names(target, epoch, run)"] if often else []),
        "            yield [load(target, name, run) for name in names[first : first + run.batch]]",
    ]
    return "\n".join(lines) + "\n"


def _load_lines(own: InputTask) -> list[str]:
    """Return the body of the script's `load`, with its faults."""
    has = own.faults.__contains__
    body = ["path = os.path.join(target, name)"]
    if has("look twice"):
        body += ["if not os.path.exists(path):", "    raise FileNotFoundError(path)"]
    body += ["size = os.stat(path).st_size"]
    if has("open twice"):
        body += [
            'with open(path, "rb") as file:',
            "    if not file.read(1):",
            '        raise ValueError(f"{name} is empty")',
        ]
    if has("small reads"):
        body += [
            'data = b""',
            'with open(path, "rb", buffering=0) as file:',
            "    while len(data) < size:",
            "        data += file.read(256)",
        ]
    else:
        body += ['with open(path, "rb") as file:', "    data = file.read(size)"]
    if has("decode twice"):
        body += ["if run.decode(data).size == 0:", '    raise ValueError(f"{name} has no pixels")']
    body += ["return run.decode(data)"]
    return body


def loaded(text: str) -> dict[str, Any]:
    """Return what a script defines; its lines are known to error messages."""
    name, scope = f"<script {zlib.crc32(text.encode())}>", {"__name__": "script"}
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), scope)
    return scope


def experiment_of(
    own: InputTask, operations: float, reads: float, size: float, decode: float
) -> Experiment:
    """Return the large run whose loader needs, a sample: metadata operations, reads, B and s of decoding."""
    samples = 1_000_000
    tier = {
        "bandwidth": own.bandwidth,
        "metadata_rate": own.metadata_rate,
        "operation_latency": own.operation_latency,
        "read_latency": own.read_latency,
        "reader_bandwidth": own.reader_bandwidth,
    }
    return Experiment(
        model="resnet50",
        dataset={"samples": samples, "bytes": samples * size, "files": samples},
        machine={"name": "selene", "storage": {"shared": tier}},
        strategy={"nodes": own.nodes, "devices_per_node": 4, "batch": own.batch},
        storage={
            "tier": "shared",
            "workers": 1,
            "operations_per_file": operations,
            "reads_per_file": reads,
            "decode": decode,
        },
    )


def rate_findings(rate: Callable[..., Any], own: InputTask) -> list[Finding]:
    """Return whether `rate(operations, reads, size, decode, tier, readers)` agrees with prediction/storage/io.py."""
    plenty: dict[str, Any] = {"metadata_rate": 1e9, "bandwidth": 1e14}
    alone = [
        _case("A tier without limits", own._replace(**plenty), 4.0, 1.0),
        _case("The same, reads in many pieces", own._replace(**plenty), 3.0, 20.0),
        _case("The same, no operation per sample", own._replace(**plenty), 0.0, 1 / own.batch),
    ]
    quick: dict[str, Any] = {"operation_latency": 1e-5, "read_latency": 1e-5}
    together = [
        _case("Many operations", own._replace(**quick), 9.0, 1.0),
        _case("Little bandwidth", own._replace(metadata_rate=1e9, bandwidth=5e7), 1.0, 1.0),
        _case("No operation per sample", own._replace(bandwidth=5e7), 0.0, 1 / own.batch),
        _case("Your own tier", own, 7.0, 2.0),
    ]
    return [
        compared(ALONE, rate, alone, say.alone_done),
        compared(TOGETHER, rate, together, say.together_done),
    ]


def _case(about: str, own: InputTask, operations: float, reads: float) -> Case:
    """Return a formula's arguments, the library's value, and the values that classic mistakes give."""
    run = experiment_of(own, operations, reads, own.sample, own.decode)
    found, many = reading(run), own.readers
    parts, right = found.reader, float(found.rate)
    one = sum(parts.values())
    slips = [
        (say.one_reader, 1 / one),
        (say.no_operations, many / (one - parts["metadata"])),
        (say.no_latency, many / (one - parts["read latency"])),
        (say.no_decoding, many / (one - parts["decoding"])),
        (say.no_transfer, many / (one - parts["transfer"])),
        (say.operation_rate, float(own.metadata_rate)),
        (say.bandwidth_alone, found.rates["storage bandwidth"]),
        (say.no_metadata, min(many / one, found.rates["storage bandwidth"])),
        (say.no_bandwidth, min(many / one, found.rates["metadata servers"])),
    ]
    limits = [many / one, found.rates["storage bandwidth"], found.rates["metadata servers"]]
    added = 1 / sum(1 / float(each) for each in limits)
    slips = [(words, wrong) for words, wrong in slips if abs(wrong / right - 1) > 2 * CLOSE]
    slips += [(say.added_limits, added)]  # close to it in some cases
    tier = run.machine.storage["shared"]
    given = operations, reads, own.sample, own.decode, tier, many
    return Case(
        about, given, right, slips, f"Here {found.why.replace('of shared', 'of the tier')}."
    )
