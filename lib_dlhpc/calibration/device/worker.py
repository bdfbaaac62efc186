"""One rank of a device's calibration: python -m lib_dlhpc.calibration.device.worker KIND FILE SECONDS.

Rank 0 writes to FILE, as JSON, the seconds of one call of each measurement, one value a round: products of each
precision, sums, calls, ping-pong and collectives; then the seconds of equal steps on each rank, and W.
"""

import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.calibration import other_processes

EDGES = tuple(2**k for k in range(6, 14))  # of square matrices, to 8,192
LONGEST = 0.03  # s; larger products than this are left out
SUMS = tuple(2**k for k in range(25, 29))  # B: beyond the caches that a device has
MESSAGES = tuple(2**k for k in range(3, 29))  # B, to 256 MiB
REDUCED = tuple(4**k for k in range(5, 15))  # B of the whole array, to 256 MiB
LARGEST = {"cpu": 1 << 24}  # B of a message or an array, by kind; others: all sizes
COLLECTIVES = ("allreduce", "all_gather", "reduce_scatter")
FEW = 16  # B of the smallest sum: a call, and nothing else
LEAST = 2e-3  # s of one measurement, about
LEAST_ROUNDS = 5
PARTS, QUICK = 4, 0.25  # consecutive blocks, and the quantile of them that counts
STEPS, STEP = 60, 5e-3  # equal steps, and the s of one, about
STEADY, SAMPLES = 2.0, 20  # s of idleness, and of products without a pause; samples of power in it
ISSUED = 50  # calls that no queue refuses


class Measurement(NamedTuple):
    """Calls of one kind. together: of all ranks at once, whose slowest counts; each: of what one call is."""

    what: str
    size: int
    together: bool
    call: Callable[[], object]
    each: float = 1.0


def measure(device: Any, seconds: float) -> dict[str, Any] | None:
    """Return the raw results on rank 0, None on others. device: a TorchDevice, or what has its calls."""
    until, idle = time.monotonic() + seconds, _power(device, None)
    plan = [*_products(device), *_sums(device), *_exchanges(device)]
    heaviest = max((each for each in plan if each.what.startswith("gemm")), key=lambda m: m.size)
    times: list[list[float]] = [[] for _ in plan]
    counts = [_count(device, each) for each in plan]
    dice, loads, order, host = random.Random(0), list[float](), list(range(len(plan))), list[Any]()
    while len(loads) < LEAST_ROUNDS or device.everyone(time.monotonic() < until)[0]:
        dice.shuffle(order)
        before = _cpu(device)
        for number in order:
            device.everyone(None)
            took = [device.seconds(plan[number].call, counts[number]) for _ in range(PARTS)]
            times[number].append(
                float(np.quantile(took, QUICK)) / counts[number] / plan[number].each
            )
        host.append(_launch(device, heaviest.call))
        loads.append(_foreign(before, _cpu(device)))
    steps = device.everyone(_steps(device, heaviest.call))
    by_rank = device.everyone(times)
    busy = _power(device, heaviest.call)
    if device.rank:
        return None
    points = [
        {"what": each.what, "size": each.size, "seconds": _merged([t[n] for t in by_rank], each)}
        for n, each in enumerate(plan)
    ]
    raw = {"kind": device.kind, "backend": device.backend, "ranks": device.ranks, **device.facts()}
    own = {"points": points, "others": loads, "steps": steps, "power": {"idle": idle, "busy": busy}}
    return (
        raw
        | own
        | {"issued": [i for i, _ in host], "queued": [q for _, q in host if q is not None]}
    )


def _products(device: Any) -> Iterator[Measurement]:
    """Products of each precision, up to those that take LONGEST."""
    for precision in device.precisions:
        for edge in EDGES:
            call = device.product(precision, edge)
            device.seconds(call, 1)
            yield Measurement(f"gemm {precision}", edge, False, call)
            if max(device.everyone(device.seconds(call, 1))) > LONGEST:
                break


def _sums(device: Any) -> Iterator[Measurement]:
    yield Measurement("call", FEW, False, device.sum(FEW))
    for size in SUMS:
        yield Measurement("sum", size, False, device.sum(size))


def _exchanges(device: Any) -> Iterator[Measurement]:
    if device.ranks == 1:
        return
    largest = LARGEST.get(device.kind, max(MESSAGES))
    for size in (each for each in MESSAGES if each <= largest):
        yield Measurement("message", size, True, device.message(size), 2.0)
    for size in (each for each in REDUCED if each <= largest):
        for name in COLLECTIVES:
            yield Measurement(name, size, True, device.collective(name, size))


def _count(device: Any, each: Measurement) -> int:
    """Return how many calls make a measurement, the same on all ranks."""
    device.seconds(each.call, 2)
    took = max(device.everyone(device.seconds(each.call, 2))) / 2
    return int(np.clip(LEAST / max(took, 1e-7), 1, 1000))


def _launch(device: Any, before: Callable[[], object]) -> tuple[float, float | None]:
    """Return the s of one call on the host, and on the device behind other work; None if that cannot be seen."""
    call = device.sum(FEW)
    issued, queued = device.issued(call, ISSUED), device.queued(call, ISSUED, before)
    return issued / ISSUED, None if queued is None else queued / ISSUED


def _steps(device: Any, call: Callable[[], object]) -> list[float]:
    """Return the s of equal steps of this rank."""
    times = max(1, round(STEP / max(device.everyone(device.seconds(call, 1))[0], 1e-7)))
    return [device.seconds(call, times) for _ in range(STEPS)]


def _power(device: Any, call: Callable[[], object] | None) -> list[float]:
    """Return samples of W while the device is idle, or computes without a pause; none if it cannot be read.

    The first half is left out: drivers report a mean of about a second.
    """
    if device.everyone(device.watts())[0] is None:
        return []
    pause, found = STEADY / SAMPLES, list[float | None]()
    times = round(pause / max(device.seconds(call, 1), 1e-7)) if call else 0
    for _ in range(SAMPLES):
        if call is None:
            device.rest(pause)
        else:
            device.seconds(call, max(1, times))
        found.append(device.watts())
    return [watts for watts in found[SAMPLES // 2 :] if watts is not None]


def _merged(by_rank: list[list[float]], each: Measurement) -> list[float]:
    """Return one time a round: the slowest rank's of exchanges, else the mean."""
    return (np.max if each.together else np.mean)(by_rank, axis=0).tolist()


def _cpu(device: Any) -> tuple[float, float, float]:
    """Return now, busy s of all cores, and CPU s of the ranks."""
    return time.monotonic(), other_processes.busy(), sum(device.everyone(time.process_time()))


def _foreign(before: tuple[float, float, float], after: tuple[float, float, float]) -> float:
    """Return the cores busy with other processes between two samples."""
    span, busy, own = (b - a for a, b in zip(before, after, strict=True))
    return max(0.0, busy - own) / max(span, 1e-9)


def main(kind: str, path: Path, seconds: float) -> None:
    """Measure on all ranks; rank 0 writes the results."""
    from lib_dlhpc.calibration.device.torch_device import TorchDevice

    device = TorchDevice(kind)
    try:
        raw = measure(device, seconds)
    finally:
        device.close()
    if raw is not None:
        path.write_text(json.dumps(raw), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
