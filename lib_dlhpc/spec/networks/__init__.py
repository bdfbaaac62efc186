"""Networks from layer shapes: each family is one function that follows its paper's table."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from lib_dlhpc.errors import SpecError, suggest
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.networks.alexnet import alexnet, lenet5, vgg
from lib_dlhpc.spec.networks.cosmoflow import cosmoflow, cosmoflow_large
from lib_dlhpc.spec.networks.decoder import decoder
from lib_dlhpc.spec.networks.decoders import bloom, llama, mpt, opt, palm
from lib_dlhpc.spec.networks.diffusion import dit, unet
from lib_dlhpc.spec.networks.hybrid import hybrid
from lib_dlhpc.spec.networks.inception import inception
from lib_dlhpc.spec.networks.recurrent import frnn, lstm_language_model
from lib_dlhpc.spec.networks.resnet import resnet, resnet_cifar
from lib_dlhpc.spec.networks.sequential import mlp, sequential
from lib_dlhpc.spec.networks.srgan import srgan_discriminator, srgan_generator
from lib_dlhpc.spec.networks.transformer import bert, gpt
from lib_dlhpc.spec.networks.vision import vit

__all__ = ["FAMILIES", "build", "unnamed"]

FAMILIES: dict[str, Callable[..., Model]] = {
    function.__name__: function
    for function in (
        alexnet,
        bert,
        bloom,
        cosmoflow,
        cosmoflow_large,
        decoder,
        dit,
        frnn,
        gpt,
        hybrid,
        inception,
        lenet5,
        llama,
        lstm_language_model,
        mlp,
        mpt,
        opt,
        palm,
        resnet,
        resnet_cifar,
        sequential,
        srgan_discriminator,
        srgan_generator,
        unet,
        vgg,
        vit,
    )
}


def build(family: str, options: Mapping[str, Any], name: str = "") -> Model:
    """Return the network of a family; the same arguments return the same object.

    Raises SpecError for an unknown family or option, a value that is not legal, and incompatible
    layers.
    """
    if family not in FAMILIES:
        raise SpecError(
            f"model family = {family!r}: must be one of {', '.join(FAMILIES)}."
            f"{suggest(family, FAMILIES)}"
        )
    try:
        key = json.dumps(dict(options), sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise SpecError(
            f"model family {family!r}: options must be numbers, text, lists and tables: {error}."
        ) from None
    return _build(family, key, name or unnamed(family))


def unnamed(family: str) -> str:
    """Return the name of a network without one; with a space, as no entry of the catalog has it."""
    return f"{family} network"


@lru_cache(maxsize=64)
def _build(family: str, options: str, name: str) -> Model:
    return replace(FAMILIES[family](**json.loads(options)), name=name)
