"""A cluster of Dask: one that runs already, by the address of its scheduler, or workers of this machine."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any

from distributed import Client, KilledWorker, LocalCluster

from lib_dlhpc.errors import SpecError
from lib_dlhpc.scale_out.places import LostError
from lib_dlhpc.spec.host import cores

SECONDS = 30  # to reach a scheduler


@contextmanager
def client(detail: str) -> Iterator[tuple[Callable[..., "Future[Any]"], int]]:
    """Yield a function that submits a call and returns its future, and the number of workers.

    detail: the address of a scheduler, or how many workers to start here; "": one for each core. Dask repeats a chunk
    whose worker is lost. Raises LostError where that happens too often, SpecError for a scheduler that does not answer.
    """
    with ExitStack() as stack:
        address: Any = detail
        if not detail or detail.isdigit():
            workers = int(detail or cores())
            here = LocalCluster(workers, threads_per_worker=1, dashboard_address=":0")
            address = stack.enter_context(here)
        try:
            there = stack.enter_context(Client(address, timeout=SECONDS, set_as_default=False))
        except (OSError, ValueError, TypeError) as error:
            raise SpecError(f"--on dask:{detail}: no scheduler answers there: {error}.") from None
        workers = max(1, sum(there.nthreads().values()))

        def submit(*call: Any) -> Any:
            return there.submit(*call, pure=False)

        try:
            yield submit, workers
        except KilledWorker as error:
            raise LostError(f"Dask gave up a chunk whose workers were lost: {error}.") from None
