"""Joules of a step by term, each way: of devices. Hosts, switches, storage and cooling are a row of their own.

Predicted and simulated joules are seconds times the watts of each term (costs/energy.py). Those of a run are the
measured seconds times its mean power: from counters, or modeled as what `dlhpc run` says (launch/energy.py).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lib_dlhpc.launch.energy import Power

REST = "rest of the machine"
DEVICES = "devices: "


def of_causes(causes: Mapping[str, Any]) -> dict[str, float]:
    """Return the J of a step by term from those by cause."""
    devices = {
        cause.removeprefix(DEVICES): float(joules)
        for cause, joules in causes.items()
        if cause.startswith(DEVICES)
    }
    rest = sum(float(joules) for cause, joules in causes.items() if not cause.startswith(DEVICES))
    return {**devices, REST: rest}


def mean_power(powers: Sequence[Power | None]) -> Power | None:
    """Return the mean power of equal runs; None where it is unknown of one."""
    known = [power for power in powers if power is not None]
    if not known or len(known) < len(powers):
        return None
    watts = sum(power.watts for power in known) / len(known)
    return Power(watts, known[0].source, all(power.measured for power in known))


def of_run(seconds: Mapping[str, float], power: Power | None) -> dict[str, float]:
    """Return the J of a measured step by term: counters do not know terms, so each has its share of the time."""
    return {name: power.watts * each for name, each in seconds.items()} if power else {}
