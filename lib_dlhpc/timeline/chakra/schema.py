"""The messages of a Chakra file: built with protobuf from their field numbers, without a compiled schema.

A file is a GlobalMetadata, then a Node after the other, each preceded by its length as a varint.
Field numbers: mlcommons/chakra, schema/protobuf/et_def.proto (version 1.0). Needs the package protobuf.
"""

from functools import cache
from typing import Any, NamedTuple

from lib_dlhpc.errors import SpecError

NODE_TYPES = (
    "INVALID_NODE",
    "METADATA_NODE",
    "MEM_LOAD_NODE",
    "MEM_STORE_NODE",
    "COMP_NODE",
    "COMM_SEND_NODE",
    "COMM_RECV_NODE",
    "COMM_COLL_NODE",
)
# An attribute has a name (1), a text (2) and one value: `int64_val` or `int64_list` and so on, numbered from 3 on.
SCALARS = (
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
)
FIELDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "GlobalMetadata": {"version": (1, "string"), "attr": (2, "AttributeProto", "repeated")},
    "IOInfo": {"values": (1, "string"), "shapes": (2, "string"), "types": (3, "string")},
    "Node": {
        "id": (1, "uint64"),
        "name": (2, "string"),
        "type": (
            3,
            "int32",
        ),  # an enum: the same on the wire, and numbers of later versions are kept
        "ctrl_deps": (4, "uint64", "repeated"),
        "data_deps": (5, "uint64", "repeated"),
        "start_time_micros": (6, "uint64"),
        "duration_micros": (7, "uint64"),
        "inputs": (8, "IOInfo"),
        "outputs": (9, "IOInfo"),
        "attr": (10, "AttributeProto", "repeated"),
    },
}


class Schema(NamedTuple):
    """The classes of the messages, and the functions that write and read one with its length."""

    metadata: Any
    node: Any
    write: Any  # (message, binary file)
    parse: Any  # (class, binary file) -> message, None at the end


@cache
def schema() -> Schema:
    """Return the messages. Raises SpecError where the package protobuf is missing or too old."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, proto
    except ImportError as error:
        raise SpecError(
            f"Chakra traces need the package protobuf, 6.30 or later: pip install 'lib-dlhpc[chakra]' ({error})."
        ) from None
    pool = descriptor_pool.DescriptorPool()  # of its own: another program's schema may be loaded
    pool.Add(_file(descriptor_pb2))
    metadata, node = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"chakra.{name}"))
        for name in ("GlobalMetadata", "Node")
    )
    return Schema(metadata, node, proto.serialize_length_prefixed, proto.parse_length_prefixed)


def value_of(attribute: Any) -> Any:
    """Return the value of an attribute, a tuple for a list; None without one."""
    which = attribute.WhichOneof("value")
    if which is None:
        return None
    value = getattr(attribute, which)
    return tuple(value.values) if which.endswith("_list") else value


def _file(pb2: Any) -> Any:
    """Return the description of all messages."""
    file = pb2.FileDescriptorProto(name="chakra.proto", package="chakra", syntax="proto3")
    attribute = file.message_type.add(name="AttributeProto")
    attribute.oneof_decl.add(name="value")
    _add(attribute, "name", 1, "string")
    _add(attribute, "doc_string", 2, "string")
    for number, scalar in enumerate(SCALARS):
        several = f"{scalar.capitalize()}List"
        _add(file.message_type.add(name=several), "values", 1, scalar, "repeated")
        _add(attribute, f"{scalar}_val", 3 + 2 * number, scalar).oneof_index = 0
        _add(attribute, f"{scalar}_list", 4 + 2 * number, several).oneof_index = 0
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        for field, about in fields.items():
            _add(message, field, *about)
    return file


def _add(message: Any, name: str, number: int, kind: str, label: str = "optional") -> Any:
    field = message.field.add(name=name, number=number)
    field.label = getattr(type(field), f"LABEL_{label.upper()}")
    if kind in SCALARS:
        field.type = getattr(type(field), f"TYPE_{kind.upper()}")
    else:
        field.type, field.type_name = type(field).TYPE_MESSAGE, f".chakra.{kind}"
    return field
