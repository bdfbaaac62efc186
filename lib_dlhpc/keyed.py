"""Keyed: an argument of a cached function that stands for others with the same key."""

from collections.abc import Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Keyed(Generic[Value]):
    """A value, equal to others by its key: what a cached function reads of it.

    A key may hold ids of objects that the value refers to: a cache keeps the value, so no other object gets them.
    """

    __slots__ = ("key", "value")

    def __init__(self, value: Value, *key: Hashable) -> None:
        self.value, self.key = value, key

    def __hash__(self) -> int:
        """Return the hash of the key."""
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        """Whether the keys are equal."""
        return isinstance(other, Keyed) and self.key == other.key
