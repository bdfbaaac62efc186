"""Halo: rows of an image that other ranks own and this rank's window reads.

Space is partitioned along one axis. Rank r owns the rows owned[r] of the image and needs the rows needed[r], which
may overlap, span several ranks, skip rows, and extend beyond the border, where `fill` stands for the padding. Rows
that a rank owns are not received. In backward, the gradients of halo rows are sent back to their owner
and added there (Dryden et al. 2019, "Improving strong-scaling of CNN training by exploiting
finer-grained parallelism", section 3.1).
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from lib_dlhpc.layers.base.saved import Array, Saved, Tensors
from lib_dlhpc.spec.model import Layer
from lib_dlhpc.training.messages.exchange import axis_of, copied

TAG = 21
Rows: TypeAlias = tuple[int, int]  # first, and one past the last
Loan: TypeAlias = tuple[int, Rows]  # peer rank, rows


class Halo:
    """The rows that this rank needs: its own, its neighbors' and the padding."""

    def __init__(self, layer: Layer) -> None:
        options = layer.attributes
        self.name, self.group, self.fill = layer.name, options["group"], options["fill"]
        self.axis, rank = axis_of(layer, options["axis"]), options["rank"]
        owned, needed = options["owned"], options["needed"]
        (self.first_owned, self.last_owned), (self.first, self.last) = owned[rank], needed[rank]
        self.own = _common(owned[rank], needed[rank])
        loans = _loans(owned, needed)
        self.lent = [(borrower, rows) for lender, borrower, rows in loans if lender == rank]
        self.borrowed = [(lender, rows) for lender, borrower, rows in loans if borrower == rank]

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y, shaped as x but with the needed rows."""
        y = saved.array(self._shape(x, self.last - self.first), x.dtype)
        parts = self._exchange(saved, x, self.first_owned, self.lent, self.borrowed)
        inside = [*(rows for _, rows in self.borrowed), *([self.own] if self.own else [])]
        edge = min((rows[0] for rows in inside), default=self.last)
        self._at(y, (self.first, edge), self.first)[...] = self.fill
        edge = max((rows[1] for rows in inside), default=self.last)
        self._at(y, (edge, self.last), self.first)[...] = self.fill
        if self.own:
            self._at(y, self.own, self.first)[...] = self._at(x, self.own, self.first_owned)
        for rows, part in parts():
            self._at(y, rows, self.first)[...] = part
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx: for each row the sum over all ranks that read it; that of the padding is dropped."""
        if not saved.wants_dx:
            return None
        dx = saved.array(self._shape(dy, self.last_owned - self.first_owned), dy.dtype)
        parts = self._exchange(saved, dy, self.first, self.borrowed, self.lent)
        dx.fill(0)
        if self.own:
            self._at(dx, self.own, self.first_owned)[...] = self._at(dy, self.own, self.first)
        for rows, part in parts():
            self._at(dx, rows, self.first_owned)[...] += part
        return dx

    def _exchange(
        self, saved: Saved, x: Array, first: int, give: list[Loan], take: list[Loan]
    ) -> Callable[[], Iterator[tuple[Rows, Array]]]:
        """Send rows of x, whose first is `first`; return a function that waits and yields the received rows.

        Work between the two overlaps the messages.
        """
        comm: Any = saved.context.groups.get(self.group)
        arrived, sent, requests = [], [], []
        for rank, rows in take:
            arrived.append(saved.array(self._shape(x, rows[1] - rows[0]), x.dtype))
            requests.append(comm.Irecv(arrived[-1], rank, TAG))
        for rank, rows in give:
            part = self._at(x, rows, first)
            sent.append(copied(saved, part))
            requests.append(comm.Isend(sent[-1], rank, TAG))

        def parts() -> Iterator[tuple[Rows, Array]]:
            if requests:
                size = sum(part.nbytes for part in sent)
                with saved.context.communicates(f"halo {self.name}", size):
                    for request in requests:
                        request.Wait()
            for (_, rows), part in zip(take, arrived, strict=True):
                yield rows, part

        return parts

    def _shape(self, x: Array, rows: int) -> tuple[int, ...]:
        return (*x.shape[: self.axis], rows, *x.shape[self.axis + 1 :])

    def _at(self, x: Array, rows: Rows, first: int) -> Array:
        """Return a view of rows in an array whose first row is `first`."""
        start, stop = rows[0] - first, max(rows[1], rows[0]) - first
        return x[(*(slice(None),) * self.axis, slice(start, stop))]


def _loans(owned: tuple[Rows, ...], needed: tuple[Rows, ...]) -> list[tuple[int, int, Rows]]:
    """Return (lender, borrower, rows) for all rows that a rank needs and does not own, each from one lender."""
    loans = []
    for borrower, wanted in enumerate(needed):
        missing = _without(wanted, owned[borrower])
        for lender, has in enumerate(owned):
            for rows in [common for piece in missing if (common := _common(piece, has))]:
                loans.append((lender, borrower, rows))
                missing = [left for piece in missing for left in _without(piece, rows)]
    return loans


def _common(first: Rows, other: Rows) -> Rows | None:
    rows = max(first[0], other[0]), min(first[1], other[1])
    return rows if rows[0] < rows[1] else None


def _without(rows: Rows, taken: Rows) -> list[Rows]:
    """Return the rows before and after those taken."""
    first, last = rows
    pieces = (first, min(last, taken[0])), (max(first, taken[1]), last)
    return [piece for piece in pieces if piece[0] < piece[1]] if taken[0] < taken[1] else [rows]
