"""How long it takes to write a checkpoint to striped files.

A file is cut into stripes, which go to `stripes` storage targets in turn. Three ways to write it:

    file per process   each rank writes a file of its own; their stripes are spread over all targets in turn
    shared file        all ranks write their parts of one file, in requests of `transfer` B
    aggregators        MPI-IO's collective buffering: some ranks collect the parts of the others over the network, and
                       write whole stripes

A rank writes one request after the other, of latency and bandwidth as a reader has them. Left out: locks, which
ranks that write into the same stripe take from each other; the way to the aggregators; metadata; and other jobs.
"""

from dataclasses import dataclass

from lib_dlhpc.errors import SpecError


@dataclass(frozen=True)
class Targets:
    """Storage targets. bandwidth: of each, B/s; latency: of a request, s; client: B/s of a rank that writes."""

    count: int
    bandwidth: float
    latency: float
    client: float

    def rank_rate(self, transfer: float) -> float:
        """Return the B/s of a rank that writes requests of `transfer` B."""
        if not transfer > 0:
            raise SpecError(f"transfer = {transfer:g}: expected bytes, above 0.")
        return transfer / (self.latency + transfer / self.client)


def shared_file(size: float, on: Targets, stripes: int, writers: int, transfer: float) -> float:
    """Return the seconds in which `writers` write one file of `size` B; as aggregators with transfer = a stripe.

    Raises SpecError for more stripes than targets, or fewer than one.
    """
    _check(on, stripes, writers)
    return size / min(stripes * on.bandwidth, writers * on.rank_rate(transfer))


def file_per_process(
    size: float, on: Targets, stripes: int, writers: int, transfer: float
) -> float:
    """Return the seconds in which each of `writers` writes a file with that many stripes, `size` B in all.

    The target with the most objects is the last to be done. Raises SpecError as `shared_file` does.
    """
    _check(on, stripes, writers)
    fullest = -(-writers * stripes // on.count)
    slowest = fullest * size / (writers * stripes) / on.bandwidth
    return max(slowest, size / (writers * on.rank_rate(transfer)))


def _check(on: Targets, stripes: int, writers: int) -> None:
    if not 1 <= stripes <= on.count:
        raise SpecError(f"stripes = {stripes}: expected 1 to {on.count}, the number of targets.")
    if writers < 1:
        raise SpecError(f"writers = {writers}: expected at least 1.")
