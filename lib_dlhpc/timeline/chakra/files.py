"""A folder of Chakra files, NAME.RANK.et or .et.gz, written and read.

Beside them is comm_group.json, the ranks of each process group, as ASTRA-sim takes it. Standard attributes are integers
(duration_micros; comm_size and tensor_size in B; num_ops). A node that is written also has the exact seconds as
dlhpc.seconds, and bytes that are not whole as dlhpc.bytes, its kind and the algorithm of a collective; a reader that
does not know them rounds every duration to microseconds, and every size to bytes.

Dependencies are `data_deps`: Chakra's own feeder follows no others, and in traces of PyTorch `ctrl_deps` are the calls
around an operator, which end after it.
Attributes and their types: mlcommons/chakra, src/feeder/et_feeder_node.cpp.
"""

import io
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.lifetime.files import replacing
from lib_dlhpc.spec.unpack import gunzip
from lib_dlhpc.timeline.chakra.node import COLLECTIVES, Node, Trace, words
from lib_dlhpc.timeline.chakra.schema import NODE_TYPES, schema, value_of

VERSION = "1.0"
GROUPS = "comm_group.json"
NAME = re.compile(r"(?P<name>.+)\.(?P<rank>\d{1,7})\.et(\.gz)?")
MICRO = 1e6
COMPUTE, SEND, RECEIVE, COLLECTIVE = (
    *("COMP_NODE", "COMM_SEND_NODE"),
    *("COMM_RECV_NODE", "COMM_COLL_NODE"),
)


def write_trace(
    folder: str | Path, ranks: Iterable[tuple[int, Iterable[Node]]], groups: Mapping[str, Any]
) -> None:
    """Write step.RANK.et for each (rank, nodes), and the ranks of each process group, atomically.

    An earlier trace in `folder` is replaced. Raises SpecError for anything else there, and without the package
    protobuf; OSError where nothing can be written.
    """
    messages, path = schema(), Path(folder)
    if path.exists() and not _is_trace(path):
        raise SpecError(
            f"{path}: exists, and is not a folder of Chakra traces; it is not replaced."
        )
    with replacing(path, guarded=True) as temporary:
        temporary.mkdir()
        for rank, nodes in ranks:
            with open(temporary / f"step.{rank}.et", "wb") as file:
                messages.write(messages.metadata(version=VERSION), file)
                for node in nodes:
                    messages.write(_message(messages.node, node), file)
        rows = (f"  {json.dumps(name)}: {json.dumps(list(of))}" for name, of in groups.items())
        text = "{\n" + ",\n".join(rows) + "\n}\n"
        (temporary / GROUPS).write_text(text, encoding="utf-8")


def read_trace(folder: str | Path) -> Trace:
    """Return the trace of all ranks in a folder. Raises SpecError, which names the file, for what cannot be read."""
    files = _by_rank(Path(folder))
    nodes = tuple(tuple(_read(path, rank)) for rank, path in enumerate(files))
    return Trace(files, nodes, _read_groups(Path(folder) / GROUPS, len(files)))


def _is_trace(path: Path) -> bool:
    names = [entry.name for entry in path.iterdir()] if path.is_dir() else [""]
    return all(name == GROUPS or NAME.fullmatch(name) for name in names)


def _by_rank(folder: Path) -> tuple[Path, ...]:
    if not folder.is_dir():
        raise SpecError(f"{folder}: no such folder; expected one with NAME.RANK.et for each rank.")
    found = [(each, NAME.fullmatch(each.name)) for each in sorted(folder.iterdir())]
    files = [(match["name"], int(match["rank"]), path) for path, match in found if match]
    names = sorted({name for name, _, _ in files})
    if len(names) != 1:
        several = f"traces of {', '.join(names)}" if names else "no file NAME.RANK.et or .et.gz"
        raise SpecError(f"{folder}: {several}; expected those of one run, one for each rank.")
    paths: dict[int, Path] = {}
    for _, rank, path in files:
        if rank in paths:
            raise SpecError(f"{path}: of rank {rank}, as is {paths[rank]}; expected one file.")
        paths[rank] = path
    for rank in range(len(paths)):
        if rank not in paths:
            raise SpecError(f"{folder}: rank {rank} of {max(paths) + 1} has no file.")
    return tuple(paths[rank] for rank in range(len(paths)))


def _read(path: Path, rank: int) -> Iterable[Node]:
    messages = schema()
    try:
        data = path.read_bytes()
        file = io.BytesIO(gunzip(data) if data[:2] == b"\x1f\x8b" else data)
        if messages.parse(messages.metadata, file) is None:
            raise ValueError("it is empty")
        while (message := messages.parse(messages.node, file)) is not None:
            yield _node(message, rank)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None
    except Exception as error:  # damaged messages fail in many ways, by version of protobuf
        if isinstance(error, OSError | EOFError | zlib.error):
            raise SpecError(f"{path}: cannot be read: {error}.") from None
        raise SpecError(f"{path}: no Chakra trace that can be read: {error}.") from None


def _node(message: Any, rank: int) -> Node:
    """Return the node of a message."""
    about = {each.name: value_of(each) for each in message.attr}
    number = message.type
    kind = NODE_TYPES[number] if 0 <= number < len(NODE_TYPES) else NODE_TYPES[0]
    host = bool(about.get("is_cpu_op", False))
    where = words(message.id, message.name)
    if kind == COLLECTIVE and host and "comm_type" not in about:
        kind = COMPUTE  # the call on the host; the collective itself is another node
    messages = kind in (SEND, RECEIVE)
    size = _number(about, "comm_size" if kind.startswith("COMM") else "tensor_size", where)
    return Node(
        message.id,
        message.name,
        kind,
        tuple(dict.fromkeys(message.data_deps)),
        _number(about, "dlhpc.seconds", where, message.duration_micros / MICRO),
        _number(about, "num_ops", where),
        _number(about, "dlhpc.bytes", where, size),
        _collective(about, where) if kind == COLLECTIVE else "",
        str(about.get("pg_name") or "") if kind == COLLECTIVE else "",
        _peer(about, kind, rank, where) if messages else -1,
        int(_number(about, "comm_tag", where)),
        host,
        str(about.get("dlhpc.kind", "")),
        str(about.get("dlhpc.algorithm", "")),
    )


def _number(about: Mapping[str, Any], name: str, where: str, default: float = 0.0) -> float:
    value = about.get(name, default)
    if not isinstance(value, int | float) or not 0 <= value < 1e300:
        raise SpecError(f"{where}: {name} = {value!r}: expected a number, at least 0.")
    return float(value)


def _collective(about: Mapping[str, Any], where: str) -> str:
    number = about.get("comm_type")
    if not isinstance(number, int) or not 0 <= number < len(COLLECTIVES):
        legal = ", ".join(f"{index} {name}" for index, name in enumerate(COLLECTIVES))
        raise SpecError(f"{where}: comm_type = {number!r}; legal: {legal}.")
    return COLLECTIVES[number]


def _peer(about: Mapping[str, Any], kind: str, rank: int, where: str) -> int:
    """Return the other end of a message; the near one, if named, is this rank."""
    near, far = ("comm_src", "comm_dst") if kind == SEND else ("comm_dst", "comm_src")
    if far not in about:
        raise SpecError(f"{where}: has no {far}; a send and a receive name the other rank.")
    if about.get(near, rank) != rank:
        raise SpecError(f"{where}: {near} = {about[near]}; expected {rank}, the rank of the file.")
    return int(_number(about, far, where))


def _message(node_class: Any, node: Node) -> Any:
    """Return the message of a node."""
    micros = round(node.seconds * MICRO) or int(node.seconds > 0)  # 0 is "not recorded"
    message = node_class(
        id=node.id,
        name=node.name,
        type=NODE_TYPES.index(node.type),
        data_deps=node.after,
        duration_micros=micros,
    )

    def add(name: str, **value: Any) -> None:
        message.attr.add(name=name, **value)

    add("is_cpu_op", bool_val=node.host)
    if node.type in (SEND, RECEIVE):
        add("comm_dst" if node.type == SEND else "comm_src", int32_val=node.peer)
        add("comm_tag", int32_val=node.tag)
    if node.type == COLLECTIVE:
        add("comm_type", int64_val=COLLECTIVES.index(node.collective))
        if node.group:
            add("pg_name", string_val=node.group)
    if node.type.startswith("COMM"):
        add("comm_size", int64_val=round(node.bytes))
    elif node.bytes:
        add("tensor_size", uint64_val=round(node.bytes))
    if node.flop:
        add("num_ops", int64_val=round(node.flop))
    if node.seconds:
        add("dlhpc.seconds", double_val=node.seconds)
    if node.bytes != round(node.bytes):
        add("dlhpc.bytes", double_val=node.bytes)
    for name, word in (("dlhpc.kind", node.kind), ("dlhpc.algorithm", node.algorithm)):
        if word:
            add(name, string_val=word)
    return message


def _read_groups(path: Path, ranks: int) -> dict[str, tuple[int, ...]]:
    """Return the process groups of a folder, if it has the file."""
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
        groups = {str(name): tuple(of) for name, of in found.items()}
        for name, of in groups.items():
            if not of or any(type(rank) is not int or rank < 0 for rank in of):
                raise ValueError(f"group {name} is not a list of ranks")
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise SpecError(f"{path}: no process groups that can be read: {error}.") from None
    for name, of in groups.items():
        if max(of) >= ranks:
            raise SpecError(f"{path}: rank {max(of)} of group {name} has no trace in the folder.")
    return groups
