"""One MPI rank of a coupled run: python -m mpi4py -m lib_dlhpc.training.coupled.worker FOLDER RANKS.

Reads workflow.toml from the folder; rank 0 writes result.json, timeline.npz and weights.npy there.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from lib_dlhpc.lifetime.files import write_text
from lib_dlhpc.training.shared_memory import unname_shared


def main(folder: Path, expected: int) -> None:
    """Run the workflow; `expected` is the number of ranks requested."""
    import numpy as np
    from mpi4py import MPI

    from lib_dlhpc.spec.host import cores
    from lib_dlhpc.spec.workflow import load
    from lib_dlhpc.timeline.store import save
    from lib_dlhpc.training.coupled.run import couple

    comm = MPI.COMM_WORLD
    if comm.size != expected:
        raise RuntimeError(f"{expected} ranks were asked for, and {comm.size} started")
    unname_shared(comm)
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
    write_text(folder / "result.json", json.dumps(table))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
