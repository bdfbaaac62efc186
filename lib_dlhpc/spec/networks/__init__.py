"""Networks from layer shapes: each family is one function that follows its paper's table."""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Any

from lib_dlhpc.errors import SpecError, listed
from lib_dlhpc.gc_pause import gc_paused
from lib_dlhpc.keyed import Keyed
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
        head = f"model family = {family!r}:"
        raise SpecError(listed(head, family, FAMILIES, "must be one of"))
    try:
        key = _hashable(options)
    except (TypeError, RecursionError) as error:
        raise SpecError(
            f"model family {family!r}: options must be numbers, text, lists and tables: {error}."
        ) from None
    return _build(family, Keyed(options, key), name or unnamed(family))


def unnamed(family: str) -> str:
    """Return the name of a network without one; with a space, as no entry of the catalog has it."""
    return f"{family} network"


def _hashable(value: Any) -> tuple[Any, ...]:
    """Return plain values as something that differs where they do, 1 and 1.0 too; raises TypeError for other values."""
    if isinstance(value, Mapping):
        return tuple(sorted((key, _hashable(each)) for key, each in value.items()))
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    if value is None or isinstance(value, str | int | float):
        return type(value), value
    raise TypeError(f"{value!r} is a {type(value).__name__}")


@lru_cache(maxsize=64)
@gc_paused()
def _build(family: str, options: Keyed[Mapping[str, Any]], name: str) -> Model:
    return replace(FAMILIES[family](**deepcopy(dict(options.value))), name=name)
