"""Queues in closed form: what a reader waits for a server that others use as well.

Utilisation is what a server is asked for over what it can do. Near 1 a queue grows without end when requests come
at random (an open queue), and stands still when each client waits for its answer (a closed one).
"""

from typing import Any

import numpy as np

from lib_dlhpc.spec.errors import SpecError


def open_wait(rate: Any, service: Any) -> Any:
    """Return the mean s in the queue of one server: `rate` requests/s at random, each `service` s long.

    M/D/1: rho s / (2 (1 - rho)), rho = rate * service (Pollaczek 1930, Khinchine 1932). Raises SpecError where
    rho is 1 or more: then there is no mean, the queue grows as long as it runs.
    """
    load = np.multiply(rate, service)
    if np.any(load >= 1):
        raise SpecError(
            f"rate * service = {np.max(load):.3g}: legal: below 1, what one server can do."
        )
    return (load * service / (2 * (1 - load)))[()]


def closed_rate(clients: Any, alone: Any, service: Any) -> Any:
    """Return the most requests/s of `clients` that each wait for the answer before they ask again.

    alone: s from one request to the next with nobody else there; service: s of it in the busiest server.
    min(N / alone, 1 / service): asymptotic bounds (Denning & Buzen 1978, section 6; Lazowska et al. 1984,
    chapter 5), met where nothing varies.
    """
    with np.errstate(divide="ignore"):
        return np.minimum(np.divide(clients, alone), np.divide(1.0, service))[()]


def saturation(alone: Any, service: Any) -> Any:
    """Return the number of clients from which the busiest server is the limit: N* = alone / service."""
    return alone / service
