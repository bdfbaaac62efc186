"""A network whose logits know in which arrays the loss is computed."""

from dataclasses import replace
from functools import lru_cache

from lib_dlhpc.layers import Layer
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.strategy import IN_PLACE


def with_loss(model: Model, way: str) -> Model:
    """Return the network with the loss of its logits computed so; the same object if it is so."""
    return _changed(model, way) or model


def is_logits(layer: Layer) -> bool:
    """Return whether a layer makes logits, of which the loss has a 32-bit copy."""
    return layer.kind == "dense" and layer.mask_bytes > 0


@lru_cache(maxsize=64)
def _changed(model: Model, way: str) -> Model | None:
    """Return the network if it becomes another one; None is of all networks that are equal, `model` of one of them."""
    others = [layer for layer in model.layers if is_logits(layer) and loss_of(layer) != way]
    if not others:
        return None
    return replace(
        model,
        layers=tuple(_with(layer, way) if layer in others else layer for layer in model.layers),
    )


def _with(layer: Layer, way: str) -> Layer:
    kept = {name: value for name, value in layer.attributes.items() if name != "loss"}
    return replace(layer, attributes=kept if way == IN_PLACE else {**kept, "loss": way})


def loss_of(layer: Layer) -> str:
    """Return in which arrays the loss of a layer of logits is computed, one of LOSSES."""
    return str(layer.attributes.get("loss", IN_PLACE))
