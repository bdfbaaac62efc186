"""A lab's checks as a program on MPI ranks."""

import sys
import traceback
from collections.abc import Callable


def end_together(main: Callable[[], None]) -> None:
    """Run `main`; a rank that raises says why and ends all others, which would wait for it for ever."""
    try:
        main()
    except Exception:
        from mpi4py import MPI

        traceback.print_exc()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)
