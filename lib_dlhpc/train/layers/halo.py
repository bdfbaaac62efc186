"""Halo: rows of an image that other ranks have, and this rank's window needs.

Space is cut along one axis. Rank r has the rows owned[r] of the whole and wants the rows needed[r], which
may overlap, reach over several ranks, leave rows out, and go beyond the border, where `fill` stands for
the padding. Backward, the gradients of borrowed rows go home and are added there (Dryden et al. 2019,
"Improving strong-scaling of CNN training by exploiting finer-grained parallelism", section 3.1).
"""

from typing import Any

from lib_dlhpc.spec.model import Layer
from lib_dlhpc.train.layers.exchange import axis_of
from lib_dlhpc.train.layers.kept import Array, Kept, Tensors

TAG = 21
Rows = tuple[int, int]  # first, and one past the last


class Halo:
    """The rows that this rank needs, put together from its own, its neighbours' and the padding."""

    def __init__(self, layer: Layer) -> None:
        options = layer.attributes
        self.name, self.group, self.fill = layer.name, options["group"], options["fill"]
        self.axis, rank = axis_of(layer, options["axis"]), options["rank"]
        owned, needed = options["owned"], options["needed"]
        (self.first_owned, self.last_owned), (self.first, self.last) = owned[rank], needed[rank]
        self.lent = _common(owned[rank], needed)  # by rank, counted in rows of the whole
        self.borrowed = _common(needed[rank], owned)
        self.own = self.lent.pop(rank, None)
        self.borrowed.pop(rank, None)

    def forward(self, weights: Tensors, kept: Kept, x: Array) -> Array:
        """Return y, of shape as x but with the rows that are needed."""
        y = kept.array(self._shape(x, self.last - self.first), x.dtype)
        parts = self._exchange(kept, x, self.first_owned, self.lent, self.borrowed)
        inside = [*self.borrowed.values(), *([self.own] if self.own else [])]
        edge = min((rows[0] for rows in inside), default=self.last)
        self._at(y, (self.first, edge), self.first)[...] = self.fill
        edge = max((rows[1] for rows in inside), default=self.last)
        self._at(y, (edge, self.last), self.first)[...] = self.fill
        if self.own:
            self._at(y, self.own, self.first)[...] = self._at(x, self.own, self.first_owned)
        for rows, part in parts():
            self._at(y, rows, self.first)[...] = part
        return y

    def backward(self, weights: Tensors, gradients: Tensors, kept: Kept, dy: Array) -> Any:
        """Return dx: the sum of what all ranks that used a row give; the padding's is dropped."""
        if not kept.wants_dx:
            return None
        dx = kept.array(self._shape(dy, self.last_owned - self.first_owned), dy.dtype)
        parts = self._exchange(kept, dy, self.first, self.borrowed, self.lent)
        dx.fill(0)
        if self.own:
            self._at(dx, self.own, self.first_owned)[...] = self._at(dy, self.own, self.first)
        for rows, part in parts():
            self._at(dx, rows, self.first_owned)[...] += part
        return dx

    def _exchange(
        self, kept: Kept, x: Array, first: int, give: dict[int, Rows], take: dict[int, Rows]
    ) -> Any:
        """Send rows of x, whose first is `first`; return what yields the rows that have come.

        What is done between the two goes on while messages are under way.
        """
        comm: Any = kept.context.groups.get(self.group)
        arrived, sent, requests = {}, [], []
        for rank, rows in take.items():
            arrived[rank] = kept.array(self._shape(x, rows[1] - rows[0]), x.dtype)
            requests.append(comm.Irecv(arrived[rank], rank, TAG))
        for rank, rows in give.items():
            part = self._at(x, rows, first)
            sent.append(kept.array(part.shape, x.dtype))
            sent[-1][...] = part
            requests.append(comm.Isend(sent[-1], rank, TAG))

        def parts() -> Any:
            size = sum(part.nbytes for part in (*sent, *arrived.values()))
            if requests:
                with kept.context.communicates(f"halo {self.name}", size):
                    for request in requests:
                        request.Wait()
            for rank in sorted(arrived):  # in one order, so that sums are the same in every run
                yield take[rank], arrived[rank]

        return parts

    def _shape(self, x: Array, rows: int) -> tuple[int, ...]:
        return (*x.shape[: self.axis], rows, *x.shape[self.axis + 1 :])

    def _at(self, x: Array, rows: Rows, first: int) -> Array:
        """Return the view of some rows in an array whose first row is `first`."""
        start, stop = rows[0] - first, max(rows[1], rows[0]) - first
        return x[(*(slice(None),) * self.axis, slice(start, stop))]


def _common(mine: Rows, theirs: tuple[Rows, ...]) -> dict[int, Rows]:
    """Return what each rank's rows have in common with mine, where that is anything."""
    found = {}
    for rank, (first, last) in enumerate(theirs):
        first, last = max(first, mine[0]), min(last, mine[1])
        if first < last:
            found[rank] = (first, last)
    return found
