"""Chakra files hold what a node has, for any reader; published traces are read whole; broken ones are refused."""

import gzip
import io
import math
import sys

import pytest
from chakra_files import SAMPLES, strip_ours, written
from hypothesis import given, settings
from hypothesis import strategies as st

from lib_dlhpc import SpecError
from lib_dlhpc.timeline.chakra import COLLECTIVES, Node, read_trace
from lib_dlhpc.timeline.chakra.schema import SCALARS, schema, value_of

pytest.importorskip("google.protobuf")

MICROBENCHMARKS = ("all_reduce", "all_gather", "all_to_all", "reduce_scatter")

sizes = st.floats(0, 1e15, allow_nan=False)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
common = {
    "id": st.integers(0, 2**64 - 1),
    "name": texts,
    "after": st.lists(st.integers(0, 2**64 - 1), max_size=4, unique=True).map(tuple),
    "seconds": st.floats(0, 1e6, allow_nan=False),
    "bytes": sizes,
}


def made(**parts):
    return st.fixed_dictionaries(common | parts).map(lambda values: Node(**values))


computations = made(
    type=st.sampled_from(["COMP_NODE", "MEM_LOAD_NODE"]),
    flop=st.integers(0, 2**53).map(float),
    host=st.booleans(),
    kind=st.sampled_from(["", "forward", "update"]),
)
collectives = made(
    type=st.just("COMM_COLL_NODE"),
    collective=st.sampled_from(COLLECTIVES),
    group=texts,
    algorithm=st.sampled_from(["", "ring"]),
)
messages = made(
    type=st.sampled_from(["COMM_SEND_NODE", "COMM_RECV_NODE"]),
    peer=st.integers(0, 10**6),
    tag=st.integers(0, 2**31 - 1),
)


@settings(max_examples=40)
@given(nodes=st.lists(computations | collectives | messages, max_size=8))
def test_a_node_is_read_as_it_was_written(nodes, tmp_path_factory):
    folder = written(tmp_path_factory.mktemp("chakra") / "trace", nodes, [])
    trace = read_trace(folder)
    assert trace.nodes == (tuple(nodes), ()) and trace.ranks == 2


def test_a_reader_of_the_format_alone_loses_less_than_its_units(tmp_path):
    node = Node(3, "a", "COMP_NODE", (), 1.23456789e-3, 1e9, 1000.4)
    given_ = Node(4, "b", "COMM_COLL_NODE", bytes=999.6, collective="ALL_REDUCE", group="2")
    folder = written(tmp_path / "trace", [node, given_])
    strip_ours(folder)
    a, b = read_trace(folder).nodes[0]
    assert a.seconds == pytest.approx(node.seconds, abs=0.5e-6) and a.bytes == 1000
    assert a.flop == 1e9 and b.bytes == 1000 and (b.collective, b.group) == ("ALL_REDUCE", "2")


def test_the_smallest_duration_is_not_taken_for_none(tmp_path):
    folder = written(tmp_path / "trace", [Node(0, "a", "COMP_NODE", seconds=1e-9)])
    strip_ours(folder)
    assert read_trace(folder).nodes[0][0].seconds == 1e-6


def test_the_schema_has_the_published_numbers():
    attribute = schema().node.DESCRIPTOR.fields_by_name["attr"].message_type.fields_by_name
    published = {"double_val": 3, "int32_val": 7, "int64_list": 10, "uint64_val": 13}
    published |= {"bool_val": 27, "bool_list": 28, "string_val": 29, "bytes_list": 32}
    assert {name: attribute[name].number for name in published} == published
    assert len(attribute) == 2 + 2 * len(SCALARS)


def fields(message):
    """Yield a message and all messages in it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in value if field.is_repeated else [value]:
                yield from fields(each)


@pytest.mark.parametrize("name", [*MICROBENCHMARKS, "ring"])
def test_a_published_trace_has_no_field_that_is_not_known(name):
    from google.protobuf.unknown_fields import UnknownFieldSet

    messages = schema()
    for path in (SAMPLES / name).iterdir():
        data = path.read_bytes()
        file = io.BytesIO(gzip.decompress(data) if path.suffix == ".gz" else data)
        assert messages.parse(messages.metadata, file) is not None
        while (node := messages.parse(messages.node, file)) is not None:
            assert all(not UnknownFieldSet(each) for each in fields(node))


@pytest.mark.parametrize("name", MICROBENCHMARKS)
def test_published_collectives_are_read(name):
    trace = read_trace(SAMPLES / name)
    assert trace.ranks == 4
    for rank, nodes in enumerate(trace.nodes):
        words = f"{name}_4npus_1MB"
        kind = name.upper()
        assert nodes == (Node(rank, words, "COMM_COLL_NODE", bytes=2**20, collective=kind),)


def test_published_messages_are_read():
    trace = read_trace(SAMPLES / "ring")
    assert trace.ranks == 8
    send, receive, reduce = trace.nodes[3][:3]
    assert (send.type, send.peer, send.bytes, send.after) == ("COMM_SEND_NODE", 4, 2**17, ())
    assert (receive.type, receive.peer, receive.after) == ("COMM_RECV_NODE", 2, (send.id,))
    assert (reduce.type, reduce.seconds, reduce.after) == ("COMP_NODE", 7e-6, (receive.id,))


@pytest.mark.parametrize("scalar", SCALARS)
def test_any_type_of_attribute_has_a_value(scalar):
    message = schema().node()
    value = {"string": "a", "bytes": b"a", "bool": True}.get(scalar, 3)
    one = message.attr.add(name="one", **{f"{scalar}_val": value})
    several = message.attr.add(name="several")
    getattr(several, f"{scalar}_list").values.extend([value, value])
    assert value_of(one) == value and value_of(several) == (value, value)
    assert value_of(message.attr.add(name="none")) is None


def refused(folder, *words):
    with pytest.raises(SpecError) as error:
        read_trace(folder)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_folders_without_a_whole_trace_are_refused(tmp_path):
    refused(tmp_path / "none", "no such folder")
    refused(tmp_path, "no file NAME.RANK.et")
    written(tmp_path / "trace", [], [], [])
    (tmp_path / "trace" / "step.1.et").unlink()
    refused(tmp_path / "trace", "rank 1 of 3 has no file")
    (tmp_path / "trace" / "step.1.et.gz").write_bytes(b"")
    refused(tmp_path / "trace", "step.1.et.gz", "empty")
    (tmp_path / "trace" / "step.01.et").write_bytes(b"")
    refused(tmp_path / "trace", "of rank 1, as is")
    (tmp_path / "trace" / "other.0.et").write_bytes(b"")
    refused(tmp_path / "trace", "other, step")


@pytest.mark.parametrize("cut", [1, 2, 5, 20])
def test_a_cut_file_is_refused(cut, tmp_path):
    file = written(tmp_path / "trace", [Node(1, "name of a node", "COMP_NODE")]) / "step.0.et"
    file.write_bytes(file.read_bytes()[:-cut])
    refused(tmp_path / "trace", str(file))


def test_what_is_no_protobuf_is_refused(tmp_path):
    file = written(tmp_path / "trace", []) / "step.0.et"
    for content in (
        b"\xff" * 40,
        b'{"nodes": []}',
        b"\x1f\x8bno gzip",
        b"\x05\x0a\xff\xff\xff\x0f",
    ):
        file.write_bytes(content)
        refused(tmp_path / "trace", str(file))


@pytest.mark.parametrize(
    "kind, attributes, words",
    [
        ("COMM_COLL_NODE", {}, ["comm_type = None", "0 ALL_REDUCE"]),
        ("COMM_COLL_NODE", {"comm_type": 10}, ["comm_type = 10"]),
        ("COMM_SEND_NODE", {"comm_src": 0}, ["has no comm_dst"]),
        ("COMM_RECV_NODE", {"comm_src": 1, "comm_dst": 2}, ["comm_dst = 2", "expected 0"]),
        ("COMP_NODE", {"num_ops": -1}, ["num_ops = -1"]),
        ("COMP_NODE", {"dlhpc.seconds": math.nan}, ["dlhpc.seconds = nan"]),
    ],
)
def test_a_node_that_cannot_be_is_refused(kind, attributes, words, tmp_path):
    from lib_dlhpc.timeline.chakra.schema import NODE_TYPES

    file = written(tmp_path / "trace", []) / "step.0.et"
    messages = schema()
    node = messages.node(id=7, name="bad\x1b one", type=NODE_TYPES.index(kind))
    for name, value in attributes.items():
        field = "double_val" if isinstance(value, float) else "int64_val"
        node.attr.add(name=name, **{field: value})
    with open(file, "ab") as out:
        messages.write(node, out)
    refused(tmp_path / "trace", str(file), "node 7 (bad? one)", *words)


@pytest.mark.parametrize(
    "text, words",
    [
        ("no", "cannot"),
        ("[1]", "cannot"),
        ('{"1": []}', "group 1"),
        ('{"1": ["a"]}', "group 1"),
        ('{"1": [0, 4]}', "rank 4 of group 1"),
    ],
)
def test_process_groups_that_cannot_be_are_refused(text, words, tmp_path):
    written(tmp_path / "trace", [], [])
    (tmp_path / "trace" / "comm_group.json").write_text(text)
    refused(tmp_path / "trace", "comm_group.json", words.replace("cannot", "can be read"))


def test_a_trace_is_replaced_and_nothing_else(tmp_path):
    folder = written(tmp_path / "trace", [], [], groups={"1": [0, 1]})
    assert read_trace(folder).groups == {"1": (0, 1)}
    assert read_trace(written(folder, [])).ranks == 1
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(SpecError, match="is not replaced"):
        written(folder, [])
    assert (folder / "notes.txt").read_text() == "mine"


def test_nothing_is_left_of_a_write_that_fails(tmp_path):
    def fails():
        yield Node(0, "a", "COMP_NODE")
        raise OSError(28, "disk full")

    with pytest.raises(OSError, match="disk full"):
        written(tmp_path / "trace", fails())
    assert list(tmp_path.iterdir()) == []


def test_without_protobuf_an_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    schema.cache_clear()
    try:
        with pytest.raises(SpecError, match=r"pip install 'lib-dlhpc\[chakra\]'"):
            written(tmp_path / "trace", [])
    finally:
        monkeypatch.undo()
        schema.cache_clear()
    assert list(tmp_path.iterdir()) == []
