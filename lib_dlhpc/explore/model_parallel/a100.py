"""The machine of module 04: nodes of A100 GPUs as in Selene, equally fast; samples are in memory already.

The GPUs are those of the roofline that the text explains: the host is always ahead, tiles fill the device.
"""

from collections.abc import Mapping
from typing import Any

from lib_dlhpc.explore.blocks.roofline import ROOFLINE
from lib_dlhpc.spec.experiment import Experiment


def on_a100(
    model: Any, dataset: str, strategy: Mapping[str, Any], nic: float = 0.0, **machine: Any
) -> Experiment:
    """Return a run in bf16. nic: bit/s, if a node has one of its own kind; machine: what else differs from Selene."""
    if nic:
        link = {"name": "ib-hdr", "latency": "6 us", "bandwidth": nic / 8}
        machine |= {"nics": 1, "inter_node": link}
    return Experiment(
        model=model,
        dataset=dataset,
        machine={"name": "selene", "device": ROOFLINE, "jitter": 0.0, **machine},
        strategy={"precision": "bf16", **strategy},
        storage={"tier": ""},
    )
