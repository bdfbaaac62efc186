"""How long it takes to write a checkpoint to striped files.

A file is cut into stripes, which go to `stripe_count` storage targets in turn. Three ways to write it:

    file per process   each rank writes a file of its own; their stripes are spread over all targets in turn
    shared file        all ranks write their parts of one file, in requests of `transfer` B
    aggregators        MPI-IO's collective buffering: some ranks collect the parts of the others over the network, and
                       write whole stripes

A rank writes one request after the other, with the bandwidth of a reader. A tier has no latency of a write: a request
takes that of a read (`StorageTier.read_latency`, not that of a stat, open or close). Left out: locks, which ranks
that write into the same stripe take from each other; the way to the aggregators; metadata; and other jobs.
"""

from dataclasses import dataclass

from lib_dlhpc.errors import SpecError


@dataclass(frozen=True)
class Targets:
    """Storage targets. bandwidth: of each, B/s; latency: of a data request, s; client: B/s of a rank that writes."""

    count: int
    bandwidth: float
    latency: float
    client: float

    def rank_rate(self, transfer: float) -> float:
        """Return the B/s of a rank that writes requests of `transfer` B."""
        if not transfer > 0:
            raise SpecError(f"transfer = {transfer:g}: expected bytes, above 0.")
        return transfer / (self.latency + transfer / self.client)


def shared_file(
    size: float, on: Targets, stripe_count: int, writers: int, transfer: float
) -> float:
    """Return the seconds in which `writers` write one file of `size` B; as aggregators with transfer = a stripe.

    Raises SpecError for a stripe count above that of targets, or below 1.
    """
    _check(on, stripe_count, writers)
    return size / min(stripe_count * on.bandwidth, writers * on.rank_rate(transfer))


def file_per_process(
    size: float, on: Targets, stripe_count: int, writers: int, transfer: float
) -> float:
    """Return the seconds in which each of `writers` writes a file with that stripe count, `size` B in all.

    The target with the most objects is the last to be done. Raises SpecError as `shared_file` does.
    """
    _check(on, stripe_count, writers)
    fullest = -(-writers * stripe_count // on.count)
    slowest = fullest * size / (writers * stripe_count) / on.bandwidth
    return max(slowest, size / (writers * on.rank_rate(transfer)))


def _check(on: Targets, stripe_count: int, writers: int) -> None:
    if not 1 <= stripe_count <= on.count:
        raise SpecError(f"stripe count = {stripe_count}: expected 1 to {on.count}, the targets.")
    if writers < 1:
        raise SpecError(f"writers = {writers}: expected at least 1.")
