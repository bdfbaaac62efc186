"""Queues in closed form: the wait at a shared server.

Utilization is demand over capacity. Near 1 an open queue (random requests) grows without bound; a closed one (each
client waits for its answer) saturates.
"""

from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError


def open_wait(rate: Any, service: Any) -> Any:
    """Return the mean wait in s at one server: `rate` random requests/s, each of `service` s.

    M/D/1: rho s / (2 (1 - rho)), rho = rate * service (Pollaczek 1930, Khinchine 1932). Raises SpecError if
    rho is 1 or more: the queue grows without bound.
    """
    load = np.multiply(rate, service)
    if np.any(load >= 1):
        raise SpecError(
            f"rate * service = {np.max(load):.3g}: legal: below 1, what one server can do."
        )
    return (load * service / (2 * (1 - load)))[()]


def closed_rate(clients: Any, alone: Any, service: Any) -> Any:
    """Return the largest rate in requests/s of `clients` that each wait for the answer before the next request.

    alone: s between requests of a single client; service: s of it in the busiest server.
    min(N / alone, 1 / service): asymptotic bounds (Denning & Buzen 1978, section 6; Lazowska et al. 1984,
    chapter 5), met where nothing varies.
    """
    with np.errstate(divide="ignore"):
        return np.minimum(np.divide(clients, alone), np.divide(1.0, service))[()]


def saturation(alone: Any, service: Any) -> Any:
    """Return the number of clients from which the busiest server is the limit: N* = alone / service."""
    return alone / service
