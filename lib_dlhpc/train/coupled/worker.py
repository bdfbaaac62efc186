"""What each MPI rank executes: python -m mpi4py -m lib_dlhpc.train.coupled.worker FOLDER RANKS STARTER.

Reads workflow.toml from the folder; rank 0 writes result.json, timeline.npz and weights.npy there. When the
process STARTER is gone, in whatever way it went, so are the ranks.
"""

import json
import os
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

WATCH = 0.5  # s


def main(folder: Path, expected: int) -> None:
    """Run the workflow; `expected` is the number of ranks that was asked for."""
    import numpy as np
    from mpi4py import MPI

    from lib_dlhpc.spec.measured import cores
    from lib_dlhpc.spec.workflow import load
    from lib_dlhpc.timeline.store import save
    from lib_dlhpc.train.coupled.run import couple

    comm = MPI.COMM_WORLD
    if comm.size != expected:
        raise RuntimeError(f"{expected} ranks were asked for, and {comm.size} started")
    result = couple(load(folder / "workflow.toml"), comm)
    if result is None:
        return
    save(result.timeline, folder / "timeline.npz")
    np.save(folder / "weights.npy", result.weights)
    table = {
        "ranks": comm.size,
        "cores": cores(),
        "seconds": result.seconds,
        "costs": asdict(result.costs),
        "steps": result.steps,
        "losses": result.losses,
        "errors": result.errors,
        "diffusivity": result.diffusivity,
    }
    (folder / "result.json").write_text(json.dumps(table), encoding="utf-8")


def end_with(process: int) -> None:
    """End this process when another of this machine is gone."""

    def watch() -> None:
        while _is_there(process):
            time.sleep(WATCH)
        os._exit(1)

    if os.name == "posix":  # elsewhere signal 0 is no question
        threading.Thread(target=watch, daemon=True).start()


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    end_with(int(sys.argv[3]))
    main(Path(sys.argv[1]), int(sys.argv[2]))
