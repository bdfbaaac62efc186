"""Networks from layer shapes: each family is one function that follows its paper's table."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Any

from lib_dlhpc.errors import SpecError, suggest
from lib_dlhpc.spec.model import Model

__all__ = ["FAMILIES", "build", "unnamed"]

_FILES = {
    "alexnet": ("alexnet", "lenet5", "vgg"),
    "cosmoflow": ("cosmoflow", "cosmoflow_large"),
    "decoder": ("decoder",),
    "decoders": ("bloom", "llama", "mpt", "opt", "palm"),
    "diffusion": ("dit", "unet"),
    "hybrid": ("hybrid",),
    "inception": ("inception",),
    "recurrent": ("frnn", "lstm_language_model"),
    "resnet": ("resnet", "resnet_cifar"),
    "sequential": ("mlp", "sequential"),
    "srgan": ("srgan_discriminator", "srgan_generator"),
    "transformer": ("bert", "gpt"),
    "vision": ("vit",),
}
_HOMES = {name: file for file, names in _FILES.items() for name in names}


class _Families(Mapping[str, Callable[..., Model]]):
    """The families by name; a file is imported when one of its families is first asked for."""

    def __getitem__(self, name: str) -> Callable[..., Model]:
        family: Callable[..., Model] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return family

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(_HOMES))

    def __len__(self) -> int:
        return len(_HOMES)


FAMILIES = _Families()


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
