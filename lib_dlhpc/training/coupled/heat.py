"""Heat: u' = diffusivity (u_xx + u_yy) on the unit square, 0 at its edge, its rows block-partitioned over ranks.

Explicit Euler in time, central differences in space (LeVeque 2007, "Finite difference methods", section 9.1):
u += r (north + south + west + east - 4 u), r = diffusivity dt / h^2, stable up to r = 1/4. Every point is
computed by the same sum in the same order under any partition, so any number of ranks gives the same bits.
With a halo `width` rows deep a rank takes `width` small steps between halo exchanges.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.spec.workflow import Simulation, share

POINTS = 5  # grid points for each wave of an initial field, in each direction
Field = NDArray[np.float64]


class Heat:
    """The rows of one rank of `comm`; without a communicator all rows, or the first `rows`, without neighbors.

    field: (rows, grid), a view that the next step changes.
    """

    def __init__(self, simulation: Simulation, comm: Any = None, rows: int = 0) -> None:
        self.simulation, self.comm = simulation, comm if comm and comm.size > 1 else None
        rank, ranks = (comm.rank, comm.size) if self.comm else (0, 1)
        self.rows = slice(rows) if rows else share(simulation.grid, rank, ranks)
        self.rows = slice(*self.rows.indices(simulation.grid)[:2])
        self.up, self.down = rank - 1, (rank + 1 if rank + 1 < ranks else -1)
        # Above and below: halo rows of a neighbor, or the edge of the square.
        self.width = simulation.width(ranks)
        self.above, self.below = (self.width if to >= 0 else 1 for to in (self.up, self.down))
        many = self.above + self.rows.stop - self.rows.start + self.below
        shape = (many, simulation.grid + 2)
        self._now, self._next, self._sum = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.ratio = simulation.diffusivity * simulation.small_step / simulation.spacing**2

    @property
    def field(self) -> Field:
        """The current rows."""
        return self._now[self.above : -self.below, 1:-1]

    def begin(self, field: Field) -> None:
        """Start from a field of all rows, (grid, grid)."""
        self.field[...] = field[self.rows]

    def step(
        self, halo: Callable[[float, float], None] = lambda start, stop: None, now: Any = float
    ) -> None:
        """Advance by one step, in its small steps. halo(start, stop): called after each halo exchange."""
        for number in range(self.simulation.substeps):
            if self.comm is not None and number % self.width == 0:
                start = now()
                self._exchange(self.comm)
                halo(start, now())
            self._small_step()

    def _exchange(self, comm: Any) -> None:
        """Exchange halo rows with both neighbors."""
        up = self.up if self.up >= 0 else _null_rank()
        down = self.down if self.down >= 0 else _null_rank()
        u, w = self._now, self.width
        first, last = (
            u[self.above : self.above + w],
            u[len(u) - self.below - w : len(u) - self.below],
        )
        comm.Sendrecv(first, up, recvbuf=u[len(u) - self.below :], source=down)
        comm.Sendrecv(last, down, recvbuf=u[: self.above], source=up)

    def _small_step(self) -> None:
        u, total = self._now, self._sum[1:-1, 1:-1]
        np.add(u[:-2, 1:-1], u[2:, 1:-1], out=total)
        total += u[1:-1, :-2]
        total += u[1:-1, 2:]
        new = self._next[1:-1, 1:-1]
        np.multiply(u[1:-1, 1:-1], -4.0, out=new)
        total += new
        total *= self.ratio
        np.add(u[1:-1, 1:-1], total, out=new)
        self._now, self._next = self._next, self._now


def _null_rank() -> int:
    from mpi4py import MPI

    return int(MPI.PROC_NULL)


def first_field(simulation: Simulation, number: int) -> Field:
    """Return the initial field of stretch `number` between two restarts: sine waves of random amplitude."""
    rng = np.random.default_rng([simulation.seed, number])
    many = max(simulation.grid // POINTS, 1)
    heights = rng.normal(size=(many, many))
    waves = modes(simulation, many)
    field = waves @ heights @ waves.T
    return np.asarray(field / field.std())


def modes(simulation: Simulation, many: int) -> Field:
    """Return sin(k pi x) at the points, for k = 1 to `many`, shape (grid, many)."""
    x = np.arange(1, simulation.grid + 1) * simulation.spacing
    return np.sin(np.pi * np.outer(x, np.arange(1, many + 1)))


def decay(simulation: Simulation, k: int, m: int, steps: int) -> float:
    """Return the amplitude of sin(k pi x) sin(m pi y) after `steps` steps: exp(-pi^2 (k^2 + m^2) D t)."""
    time = steps * simulation.substeps * simulation.small_step
    return float(np.exp(-(np.pi**2) * (k * k + m * m) * simulation.diffusivity * time))
