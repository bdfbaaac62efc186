"""Networks from layer shapes: each family is one function that reads like its paper's table."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from lib_dlhpc.spec.errors import SpecError, suggest
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.networks.alexnet import alexnet, lenet5, vgg
from lib_dlhpc.spec.networks.resnet import resnet, resnet_cifar
from lib_dlhpc.spec.networks.transformer import bert, gpt

__all__ = ["FAMILIES", "build"]

FAMILIES: dict[str, Callable[..., Model]] = {
    function.__name__: function
    for function in (alexnet, bert, gpt, lenet5, resnet, resnet_cifar, vgg)
}


def build(family: str, options: Mapping[str, Any], name: str = "") -> Model:
    """Return the network of a family; the same arguments return the same object.

    Raises SpecError for an unknown family or option, a value that is not legal, and layers that do
    not fit each other.
    """
    if family not in FAMILIES:
        raise SpecError(
            f"model family = {family!r}: must be one of {', '.join(FAMILIES)}."
            f"{suggest(family, FAMILIES)}"
        )
    try:
        key = json.dumps(dict(options), sort_keys=True)
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"model family {family!r}: options must be numbers, text, lists and tables: {error}."
        ) from None
    return _build(family, key, name or family)


@lru_cache(maxsize=64)
def _build(family: str, options: str, name: str) -> Model:
    return replace(FAMILIES[family](**json.loads(options)), name=name)
