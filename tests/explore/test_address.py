"""The fragment of an address: values keep their kind, and what is not understood is named."""

import pytest

from lib_dlhpc.explore.blocks.address import decode, encode


def test_an_address_can_be_read():
    fields = {"preset": "goyal-2017", "strategy.nodes": 64, "strategy.overlap": False}
    assert encode(fields) == "v1&preset=goyal-2017&strategy.nodes=64&strategy.overlap=false"


@pytest.mark.parametrize(
    "value", ["64", "true", "null", "", "a&b=c#d é", '"', 64, True, None, 1.5, {"a": [1]}]
)
def test_values_keep_their_kind(value):
    found = decode(encode({"x": value})).fields["x"]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "ignored"),
    [
        ("v2&a=1", "version 'v2'"),
        ("v1&a", "'a'"),
        ("v1&a=1&a=2", "a second a"),
        ("v1&" + "x" * 4000, "4,003 characters"),
    ],
)
def test_what_is_not_understood_is_named(text, ignored):
    assert ignored in " ".join(decode(text).ignored)


def test_no_fragment_says_nothing():
    assert decode("") == ({}, ()) == decode("#")
