"""Services of language models for tests: small ones, and those of the catalog."""

from dataclasses import replace

from lib_dlhpc.serving import Service, predict_service, read_service

TINY = {
    "family": "llama",
    "layers": 2,
    "hidden": 32,
    "heads": 4,
    "kv_heads": 2,
    "feed_forward": 64,
    "vocabulary": 32,
    "sequence": 64,
}


def tiny(machine: object = "laptop", **changes: object) -> Service:
    """Return a service that decodes in milliseconds, in 64-bit numbers."""
    service = {"precision": "fp64", "cache_precision": "fp64", "graph": False, "batch": 4}
    tables = {"model": TINY, "machine": machine, "service": service, "requests": {"count": 12}}
    return read_service(tables).set(**{"prompt": 6, "answer": 5, "rate": 0.0, **changes})


def large(model: str = "llama3-8b", machine: str = "h100-pod", **changes: object) -> Service:
    """Return a service of the catalog."""
    return read_service({"model": model, "machine": machine}).set(**changes)


def cramped(service: Service, sequences: int) -> Service:
    """Return the service on a device with room for this number of its longest sequences."""
    found = predict_service(service)
    memory = service.machine.device.memory - found.room + sequences * found.cache_sequence
    device = replace(service.machine.device, memory=memory)
    return replace(service, machine=replace(service.machine, device=device))
