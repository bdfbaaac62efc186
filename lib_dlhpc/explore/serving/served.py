"""The services of the lesson on serving: language models on eight GPUs of a node, and the words of their terms."""

from typing import Annotated, Any

from lib_dlhpc.costs import BYTES
from lib_dlhpc.explore.blocks.bench import Dropdown
from lib_dlhpc.results.palette import BACKWARD, COLLECTIVES, FORWARD, GRADIENTS, IDLE, INPUT, UPDATE
from lib_dlhpc.serving import Service, read_service
from lib_dlhpc.serving.price import StepTime
from lib_dlhpc.serving.shard import Shard

NETWORKS = {"Llama 3 8B": "llama3-8b", "Llama 2 13B": "llama2-13b", "Llama 3 70B": "llama3-70b"}
GPUS = {"A100 80 GB": "selene", "H100 80 GB": "h100-pod", "H200 141 GB": "h200-pod"}
WEIGHTS = {"bf16, 2 bytes": "bf16", "fp8, 1 byte": "fp8", "int4, half a byte": "int4"}
Network = Annotated[str, Dropdown("Network", "What answers", NETWORKS)]
Weights = Annotated[str, Dropdown("Weights", "Bytes of each", WEIGHTS)]
PER_NODE = 8
WORDS = {name: words for words, name in NETWORKS.items()}
# Terms of a step by the names of StepTime: the words and the color of each.
TERMS = {
    "weights": ("reading weights", BACKWARD),
    "arithmetic": ("matmuls", FORWARD),
    "cache": ("reading the cache", GRADIENTS),
    "attention": ("attention", INPUT),
    "activations": ("other layers", IDLE),
    "launch": ("start of kernels", UPDATE),
    "communication": ("tensor collectives", COLLECTIVES),
}
COLORS = dict(TERMS.values())


def service(model: Any, machine: Any, requests: dict[str, Any], **serving: Any) -> Service:
    """Return a service from the tables of its file."""
    tables = {"model": model, "machine": machine, "service": serving, "requests": requests}
    return read_service(tables)


def named(step: StepTime) -> dict[str, float]:
    """Return the seconds of a step by what they are called."""
    return {TERMS[term][0]: seconds for term, seconds in step.terms.items()}


def bytes_read(shard: Shard) -> float:
    """Return the bytes of weights that a step reads on a GPU; of an embedding it reads only some rows."""
    elements = sum(layer.parameters for layer in shard.model.layers)
    return float(BYTES[shard.precision] * elements)
