"""Small networks, and experiments that split them over as many devices as the settings need."""

from lib_dlhpc.spec.experiment import Experiment

# 8 equal dense layers: stages of any number that divides 8 are equal.
EQUAL = {"family": "sequential", "input": [64], "layers": [{"kind": "dense", "features": 64}] * 8}
GPT = {
    "family": "gpt",
    "layers": 4,
    "hidden": 64,
    "heads": 4,
    "sequence": 32,
    "vocabulary": 64,
    "dropout": 0.0,
}
MOE = GPT | {"experts": 8, "chosen": 2}
IMAGES = {
    "family": "sequential",
    "input": [3, 32, 32],
    "layers": [
        {"kind": "conv", "channels": 8, "kernel": 3, "padding": 1},
        {"kind": "relu"},
        {"kind": "conv", "channels": 8, "kernel": 3, "padding": 1},
        {"kind": "relu"},
        {"kind": "flatten"},
        {"kind": "dense", "features": 10},
    ],
}


def split(model, links=None, jitter=0.0, devices_per_node=1, **strategy):
    devices = strategy.get("data", 1)
    for name in ("tensor", "pipeline", "spatial", "context"):
        devices *= strategy.get(name, 1)
    node = min(devices_per_node, devices)
    machine = {"name": "h100-pod", "nodes": max(64, devices), "jitter": jitter}
    if links is not None:
        machine |= {"intra_node": links, "inter_node": links}
    return Experiment(
        model=model,
        dataset="imagenet",
        machine=machine,
        strategy={
            "batch": 8,
            "fused_attention": "off",
            "nodes": devices // node,
            "devices_per_node": node,
            **strategy,
        },
    )
