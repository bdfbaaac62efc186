"""The tables of an experiment on Summit, and the objects that their dotted names reach."""

from typing import Any

from lib_dlhpc.spec.dataset import Dataset
from lib_dlhpc.spec.experiment import Calibration
from lib_dlhpc.spec.machine import Device, Link, Machine, StorageTier
from lib_dlhpc.spec.run import Run
from lib_dlhpc.spec.storage import Storage
from lib_dlhpc.spec.strategy import Strategy

TABLES: dict[str, Any] = {
    "strategy": Strategy,
    "storage": Storage,
    "calibration": Calibration,
    "run": Run,
    "dataset": Dataset,
    "machine": Machine,
    "machine.device": Device,
    "machine.intra_node": Link,
    "machine.inter_node": Link,
    "machine.host_link": Link,
    "machine.storage.nvme": StorageTier,
}


def reach(noun: Any, key: str) -> Any:
    """Return what a dotted name reaches."""
    for part in key.split("."):
        noun = noun[part] if isinstance(noun, dict) else getattr(noun, part)
    return noun
