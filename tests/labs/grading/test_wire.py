"""Messages: what is plain comes as it was sent, what is no message is never more than an error."""

import json
import socket
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from lib_dlhpc.labs.grading.inside import stubs, wire
from lib_dlhpc.schedules import pipeline

DTYPES = arrays.boolean_dtypes() | arrays.integer_dtypes() | arrays.floating_dtypes(sizes=(32, 64))
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text()
)
ARRAYS = arrays.arrays(
    DTYPES, arrays.array_shapes(min_dims=0, min_side=0), elements={"allow_nan": False}
)
VALUES = st.recursive(
    LEAVES | ARRAYS,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.tuples(st.integers()), inner)
    ),
    max_leaves=8,
)


def refuse(*what):
    raise ValueError(what)


def passed_on(raw):
    """What comes of raw bytes."""
    one, other = socket.socketpair()
    with one, other:
        one.sendall(raw)
        one.shutdown(socket.SHUT_WR)
        return wire.receive(other, refuse)


def framed(text, tail=b""):
    text = text if isinstance(text, bytes) else json.dumps(text).encode()
    return wire.HEAD.pack(len(text), len(tail)) + text + tail


def same(one, other):
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return one == other and type(one) is type(other)


@given(VALUES)
def test_what_is_plain_comes_as_it_was_sent(value):
    one, other = socket.socketpair()
    with one, other:
        wire.send(one, value, refuse)
        assert same(value, wire.receive(other, refuse))


def test_arrays_that_come_may_be_written_to():
    found = passed_on(framed({"array": [0, "<f8", [2]]}, bytes(16)))
    found += 1
    assert found.tolist() == [1, 1]


FLOATS = {"array": [0, "<f8", [2]]}


@pytest.mark.parametrize(
    "raw",
    [
        framed(b"{"),
        framed(b"\xff"),
        framed(b"[" * 100_000),
        framed({"unknown": 1}),
        framed({}),
        framed({"a": 1, "b": 2}),
        framed({"tuple": 3}),
        framed({"dict": [[[], 1]]}),
        framed({"array": [0, "|O", [1]]}, bytes(8)),
        framed({"array": [0, "<f8", [-1]]}, bytes(8)),
        framed({"array": [0, "<f8", [2.0]]}, bytes(16)),
        framed({"array": [0, "<f8", [3]]}, bytes(16)),
        framed({"array": [-8, "<f8", [1]]}, bytes(16)),
        framed({"array": 7}),
        framed([FLOATS, FLOATS], bytes(16)),
        framed(b"9" * 10_000),
        wire.HEAD.pack(2**32 - 1, 2**32 - 1),
        wire.HEAD.pack(wire.MOST_TEXT + 1, 0),
    ],
)
def test_what_is_no_message_is_an_error(raw):
    with pytest.raises(wire.Garbled):
        passed_on(raw)


@pytest.mark.parametrize("raw", [b"", b"\0\0", wire.HEAD.pack(10, 0) + b"[1"])
def test_an_end_within_a_message_is_an_end(raw):
    with pytest.raises(wire.Closed):
        passed_on(raw)


def test_what_is_too_large_is_not_sent():
    one, other = socket.socketpair()
    with one, other, pytest.raises(ValueError, match="are allowed"):
        wire.send(one, np.zeros(wire.MOST, np.uint8), refuse)


def test_one_who_sends_byte_by_byte_is_asked_for_the_time():
    ours, theirs = socket.socketpair()
    looked = []

    def alive():
        looked.append(1)
        if len(looked) == 3:
            raise TimeoutError("over")
        theirs.send(b"\0")

    theirs.send(b"\0")
    with ours, theirs, pytest.raises(TimeoutError, match="over"):
        wire.receive(ours, refuse, alive)
    assert len(looked) == 3


@pytest.mark.parametrize("name", stubs.NOUNS)
def test_instructions_of_a_process_have_the_fields_of_the_librarys(name):
    """A process has no library, so it has instructions of its own; they travel as the list of their fields."""
    own, ours = stubs.NOUNS[name], getattr(pipeline, name)
    assert [each.name for each in fields(own)] == [each.name for each in fields(ours)]
