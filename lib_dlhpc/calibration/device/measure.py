"""measure_device: start the ranks of a device's calibration, one a device, and read their results."""

import json
import os
import subprocess
import sys
from typing import Any

from lib_dlhpc.calibration.device.torch_device import check_device, devices_here
from lib_dlhpc.calibration.workspace import CalibrationError
from lib_dlhpc.lifetime import owned
from lib_dlhpc.spec.host import cores

WORKER = "lib_dlhpc.calibration.device.worker"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
PATIENCE = 300.0  # s beyond the requested time: torch starts, and libraries of devices choose their kernels


def measure_device(kind: str, ranks: int, seconds: float) -> dict[str, Any]:
    """Return the raw results of `ranks` devices in about `seconds`; ranks 0: one a device, two of a processor.

    Raises SpecError for devices that are not there, and CalibrationError if a rank fails.
    """
    ranks = ranks or (min(2, cores()) if kind == "cpu" else devices_here().get(kind, 1))
    check_device(kind, ranks)
    threads = str(max(1, cores() // ranks)) if kind == "cpu" else "1"
    with owned.temporary_folder("dlhpc-calibrate-") as folder:
        file = folder / "device.json"
        start = (*TORCHRUN, str(ranks)) if ranks > 1 else ()
        words = [sys.executable, *start, "-m", WORKER, kind, str(file), f"{seconds:g}"]
        try:
            done = owned.run(
                words,
                seconds + PATIENCE,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": threads},
                start_new_session=os.name == "posix",
            )
        except subprocess.TimeoutExpired:
            raise CalibrationError(f"{ranks} ranks on {kind} did not end in time.") from None
        if done.returncode or not file.exists():
            raise CalibrationError(f"{ranks} ranks on {kind} failed: {_reason(done.stderr)}")
        raw: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return raw | {"threads": int(threads)}


def _reason(errors: str) -> str:
    """Return the line of a rank's error, before what torchrun says of it."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    of_ranks = [line.rpartition("]: ")[2] for line in lines if "Error: " in line]
    return (of_ranks or lines or ["no output"])[0]
