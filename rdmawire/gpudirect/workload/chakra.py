"""Execution traces of Chakra: a file for each rank, as JSON or as protocol buffers.

Nodes are computations, sends, receives and collectives; data and control dependencies say which
nodes must have ended before. A JSON file has one object after the other, as the ``jsonizer`` of
Chakra writes them, or one with a list ``workload_graph``. Facts: ``et_def.proto``, the feeder and
the jsonizer of Chakra, and the workload layer of ASTRA-sim: a computation takes
``duration_micros``, a node with ``is_cpu_op`` is a computation of the processor in any case, and
``comm_size`` are the bytes that a rank puts into a collective.
"""

import json
from codecs import BOM_UTF8
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any, BinaryIO, Final, NamedTuple

from rdmawire.errors import WorkloadError
from rdmawire.gpudirect.nccl.collective import Collective
from rdmawire.gpudirect.workload.algorithm import ring_algorithm
from rdmawire.gpudirect.workload.chakra_proto import NODE_TYPES, read_messages
from rdmawire.gpudirect.workload.graph import (
    MAX_OPERATIONS,
    MAX_RANKS,
    Call,
    Kind,
    Operation,
    Workload,
    add_operation,
)
from rdmawire.terminal import quote

MAX_BYTES: Final = 1 << 26
"""Bytes of a file."""
_MICROSECOND: Final = 1000
_CPU: Final = 0
_GPU: Final = 1
"""Streams: operations of the processor, and of the GPU."""
_COLLECTIVES: Final = (
    "ALL_REDUCE", "REDUCE", "ALL_GATHER", "GATHER", "SCATTER", "BROADCAST", "ALL_TO_ALL",
    "REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK", "BARRIER",
)  # fmt: skip
"""Values of ``comm_type``, in order."""
_SUPPORTED: Final = {
    "ALL_REDUCE": Collective.ALL_REDUCE,
    "ALL_GATHER": Collective.ALL_GATHER,
    "BROADCAST": Collective.BROADCAST,
    "ALL_TO_ALL": Collective.ALL_TO_ALL,
    "REDUCE_SCATTER": Collective.REDUCE_SCATTER,
    "REDUCE_SCATTER_BLOCK": Collective.REDUCE_SCATTER,
    "BARRIER": Collective.ALL_REDUCE,
}
_WORDS: Final = {
    "id": ("id", "Id"),
    "name": ("name", "Name"),
    "type": ("type", "NodeType", "node_type"),
    "data": ("dataDeps", "data_deps"),
    "control": ("ctrlDeps", "ctrl_deps"),
    "duration": ("durationMicros", "duration_micros", "runtime"),
}
"""What a node has, by the names that files use."""
_INTEGERS: Final = ("comm_size", "comm_src", "comm_dst", "comm_tag", "comm_type", "root_rank")

Groups = Mapping[str, Sequence[int]]
"""Ranks of process groups, by name."""


class ChakraNode(NamedTuple):
    """A node of a trace; ``attributes`` are those with the names that Chakra has for them."""

    id: int
    name: str
    type: str
    after: tuple[int, ...]
    duration: int
    attributes: Mapping[str, Any]


def parse_chakra(files: Iterable[tuple[BinaryIO, str]], groups: Groups | None = None) -> Workload:
    """Read a workload from a binary file and its name for each rank, in the order of ranks.

    ``groups`` are process groups that nodes name by ``pg_name``; others have the ranks that use
    their name, and a node without one is of all ranks. Raises :class:`WorkloadError` for the first
    error, with its file and node.
    """
    traces: list[_Trace] = []
    for rank, (file, source) in enumerate(files):
        if rank == MAX_RANKS:
            raise WorkloadError(f"{source}: at most {MAX_RANKS} ranks are supported")
        traces.append(_Trace(file, source, rank, sum(len(one.nodes) for one in traces)))
    _add_calls(traces, groups or {})
    ranks: list[list[Operation]] = []
    for trace in traces:
        ranks.append(trace.operations(sum(map(len, ranks))))
    return Workload("Chakra", [trace.source for trace in traces], ranks)


def parse_groups(data: bytes, source: str = "groups") -> Groups:
    """Read process groups from JSON: names, each with a list of ranks."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise WorkloadError(f"{source}{_reason(error)}") from None
    if not isinstance(found, dict):
        raise WorkloadError(f"{source}: an object with the ranks of each group is expected")
    for name, ranks in found.items():
        good = isinstance(ranks, list) and all(type(rank) is int for rank in ranks)
        if not good or len(set(ranks)) != len(ranks) or not ranks:
            raise WorkloadError(f"{source}: group {quote(name)}: a list of ranks is expected")
    return found


class _Trace:
    """The nodes of one rank, in the order of the file; ``calls`` are its collectives, by node.

    ``total`` are the nodes of earlier ranks.
    """

    def __init__(self, file: BinaryIO, source: str, rank: int, total: int) -> None:
        self.source = source
        self.rank = rank
        self.calls: dict[int, tuple[Call, int]] = {}
        self.nodes: dict[int, ChakraNode] = {}
        for node in _nodes(file, source):
            if node.id in self.nodes:
                raise WorkloadError(f"{self.where(node)} is there already")
            self.nodes[node.id] = node
            if total + len(self.nodes) > MAX_OPERATIONS:
                raise WorkloadError(f"{self.where(node)}: more than {MAX_OPERATIONS} nodes")

    def where(self, node: ChakraNode) -> str:
        """Return the place of a node in messages."""
        return f"{self.source}, node {node.id}"

    def collectives(self) -> Iterator[ChakraNode]:
        """Yield the nodes that are collectives, in order."""
        for node in self.nodes.values():
            if node.type == "COMM_COLL_NODE" and not _is_of_cpu(node):
                yield node

    def operations(self, total: int) -> list[Operation]:
        """Return the operations of the nodes; ``total`` are those of earlier ranks."""
        places = {number: index for index, number in enumerate(self.nodes)}
        found: list[Operation] = []
        for index, node in enumerate(self.nodes.values()):
            operation = self._operation(node)
            for before in dict.fromkeys(node.after):
                if before not in places:
                    raise WorkloadError(
                        f"{self.where(node)} depends on node {before}, which is not there"
                    )
                operation.require(places[before])
            add_operation(found, operation, total + index, self.where(node))
        return found

    def _operation(self, node: ChakraNode) -> Operation:
        label = f"node {node.id} ({node.name[:40]})" if node.name else f"node {node.id}"
        if node.id in self.calls:
            call, size = self.calls[node.id]
            return Operation(Kind.COLLECTIVE, size, label=label, call=call)
        if node.type in _ENDS and not _is_of_cpu(node):
            kind, own, peer = _ENDS[node.type]
            if self._value(node, own, self.rank) != self.rank:
                raise WorkloadError(
                    f"{self.where(node)}: {own} is {node.attributes[own]}, not {self.rank}"
                )
            return Operation(
                kind, self._value(node, "comm_size"), self._value(node, peer),
                self._value(node, "comm_tag", 0), label=label,
            )  # fmt: skip
        stream = _CPU if _is_of_cpu(node) else _GPU
        return Operation(Kind.COMPUTE, node.duration * _MICROSECOND, stream=stream, label=label)

    def _value(self, node: ChakraNode, name: str, default: int | None = None) -> int:
        """Return an attribute that is a number."""
        found: int | None = node.attributes.get(name, default)
        if found is None:
            raise WorkloadError(f"{self.where(node)}: {node.type} has no {name}")
        return found

    def collective(self, node: ChakraNode) -> tuple[str, int, int]:
        """Return what a collective is, its bytes, and its root."""
        number = self._value(node, "comm_type")
        name = _COLLECTIVES[number] if number < len(_COLLECTIVES) else str(number)
        if name not in _SUPPORTED:
            known = ", ".join(_SUPPORTED)
            raise WorkloadError(f"{self.where(node)}: comm_type {name}; known are {known}")
        size = 0 if name == "BARRIER" else self._value(node, "comm_size")
        return name, size, self._value(node, "root_rank", 0)


_ENDS: Final = {
    "COMM_SEND_NODE": (Kind.SEND, "comm_src", "comm_dst"),
    "COMM_RECV_NODE": (Kind.RECEIVE, "comm_dst", "comm_src"),
}
"""Kinds of messages: the attribute of the rank itself, and that of its peer."""


def _is_of_cpu(node: ChakraNode) -> bool:
    return bool(node.attributes.get("is_cpu_op"))


# Collectives.


def _add_calls(traces: list[_Trace], groups: Groups) -> None:
    """Match the collectives of ranks: the calls of a group are in the same order in each rank."""
    algorithm = cache(ring_algorithm)
    numbers = count()
    for name, group in _members(traces, groups).items():
        for nodes in zip(*_matched(traces, name, group), strict=True):
            kind, size, root = traces[group[0]].collective(nodes[0])
            place = group.index(root) if root in group else 0
            call = Call(algorithm(_SUPPORTED[kind], len(group), place), group, next(numbers))
            total = size * (len(group) if kind == "ALL_GATHER" else 1)
            for rank, node in zip(group, nodes, strict=True):
                traces[rank].calls[node.id] = call, max(total, len(group))


def _matched(traces: list[_Trace], name: str, group: tuple[int, ...]) -> list[list[ChakraNode]]:
    """Return the calls of a group by each of its ranks, which are the same ones."""
    calls = [_calls_of(traces[rank], name) for rank in group]
    for rank, found in zip(group, calls, strict=True):
        _compare(traces, name, group[0], rank, calls[0], found)
    return calls


def _group_name(node: ChakraNode) -> str:
    name = str(node.attributes.get("pg_name", ""))
    return "" if name == "0" else name


def _members(traces: list[_Trace], groups: Groups) -> dict[str, tuple[int, ...]]:
    """Return the ranks of each process group that is used."""
    users: dict[str, list[int]] = defaultdict(list)
    for trace in traces:
        for name in dict.fromkeys(map(_group_name, trace.collectives())):
            users[name].append(trace.rank)
    found: dict[str, tuple[int, ...]] = {}
    for name, ranks in users.items():
        everyone = range(len(traces)) if not name else ranks
        found[name] = tuple(groups.get(name or "0", everyone))
        for rank in {*ranks, *found[name]}:
            if rank not in range(len(traces)) or rank not in found[name]:
                raise WorkloadError(
                    f"group {quote(name)}: rank {rank} is not in it, or there is no trace of it"
                )
    return found


def _calls_of(trace: _Trace, name: str) -> list[ChakraNode]:
    return [node for node in trace.collectives() if _group_name(node) == name]


def _compare(  # noqa: PLR0917
    traces: list[_Trace],
    name: str,
    one: int,
    other: int,
    first: list[ChakraNode],
    found: list[ChakraNode],
) -> None:
    """Raise :class:`WorkloadError` unless two ranks have the same collectives."""
    group = f" of group {quote(name)}" if name else ""
    for mine, yours in zip(first, found, strict=False):
        if traces[one].collective(mine) != traces[other].collective(yours):
            raise WorkloadError(
                f"{traces[other].where(yours)}: {_call_text(traces[other], yours)}, but rank {one}"
                f" has {_call_text(traces[one], mine)} in its place ({traces[one].where(mine)})"
            )
    if len(first) != len(found):
        more, less = (one, other) if len(first) > len(found) else (other, one)
        node = max(first, found, key=len)[min(len(first), len(found))]
        raise WorkloadError(
            f"rank {more}, {traces[more].where(node)}: {_call_text(traces[more], node)}{group} has"
            f" no call of rank {less}"
        )


def _call_text(trace: _Trace, node: ChakraNode) -> str:
    kind, size, _ = trace.collective(node)
    return f"{kind} of {size} bytes"


# Files.


_CONVERTER: Final = "chakra_trace_link and chakra_converter"


def _nodes(file: BinaryIO, source: str) -> Iterator[ChakraNode]:
    data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise WorkloadError(f"{source}: more than {MAX_BYTES} bytes")
    is_json = data.removeprefix(BOM_UTF8).lstrip()[:1] in {b"{", b"["}
    for number, values in enumerate(_json(data, source) if is_json else _proto(data, source)):
        yield _node(values, f"{source}, node {values.get('id', f'number {number}')}")


def _proto(data: bytes, source: str) -> Iterator[dict[str, Any]]:
    for values in read_messages(data, source):
        values["attributes"] = values.pop("attr", {})
        yield values


_METADATA: Final = frozenset({"version", "attr", "workload_graph"})
"""Keys of the first object of a JSON file: GlobalMetadata of Chakra's jsonizer, or a list."""


def _json(data: bytes, source: str) -> Iterator[dict[str, Any]]:
    """Yield what each node of a JSON file has."""
    is_trace = False
    for one in _objects(data, source):
        is_trace |= bool(_METADATA & set(one))
        if isinstance(one.get("nodes"), list) and "workload_graph" not in one:
            raise WorkloadError(f"{source}: a trace of PyTorch; convert it by {_CONVERTER}")
        nodes = one.get("workload_graph", [one])
        for node in nodes if isinstance(nodes, list) else [nodes]:
            if not isinstance(node, dict):
                raise WorkloadError(f"{source}: a node is no object: {quote(str(node)[:40])}")
            names = {word for words in _WORDS.values() for word in words}
            if node is one and not names & set(node) - {"name"}:
                continue  # metadata of the file
            is_trace = True
            values = {
                key: node[word] for key, words in _WORDS.items() for word in words if word in node
            }
            values["attributes"] = _attributes(node, source)
            yield values
    if not is_trace:
        raise WorkloadError(f"{source}: JSON without any node of a trace of Chakra")


def _objects(data: bytes, source: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file, one after the other or in a list."""
    decoder = json.JSONDecoder()
    try:
        text = data.decode("utf-8-sig")
        at = len(text) - len(text.lstrip())
        while at < len(text):
            found, end = decoder.raw_decode(text, at)
            for one in found if isinstance(found, list) else [found]:
                if not isinstance(one, dict):
                    raise WorkloadError(f"{source}: an object is expected")
                yield one
            at = end + len(text[end:]) - len(text[end:].lstrip())
    except (ValueError, RecursionError) as error:
        raise WorkloadError(f"{source}{_reason(error)}") from None


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f", line {error.lineno}: {error.msg[:1].lower()}{error.msg[1:]}"
    return ": no JSON in UTF-8" if isinstance(error, ValueError) else ": too deeply nested"


def _attributes(node: dict[str, Any], source: str) -> dict[str, Any]:
    """Return the attributes of a node: those in its list ``attr``, and those beside its name."""
    found: dict[str, Any] = {
        name: node[name] for name in (*_INTEGERS, "is_cpu_op", "pg_name") if name in node
    }
    listed = node.get("attr", [])
    for one in listed if isinstance(listed, list) else []:
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            raise WorkloadError(f"{source}: an attribute without a name")
        values = [value for key, value in one.items() if key not in {"name", "docString"}]
        if values:
            found[one["name"]] = values[0]
    return found


def _node(values: dict[str, Any], where: str) -> ChakraNode:
    """Return a node from what a file has of it."""
    attributes = dict(values["attributes"])
    for name in _INTEGERS:
        if name in attributes:
            attributes[name] = _integer(attributes[name], name, where)
    flag = attributes.get("is_cpu_op")
    attributes["is_cpu_op"] = isinstance(flag, int | str) and flag in {True, "true"}
    deps = [*_list(values.get("data", [])), *_list(values.get("control", []))]
    return ChakraNode(
        _integer(values.get("id", 0), "id", where),
        str(values.get("name", "")),
        _type(values.get("type", 0), where),
        tuple(_integer(one, "a dependency", where) for one in deps),
        _integer(values.get("duration", 0), "the duration", where),
        attributes,
    )


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else [found]


def _type(found: Any, where: str) -> str:
    if isinstance(found, int) and 0 <= found < len(NODE_TYPES):
        return NODE_TYPES[found]
    if found in NODE_TYPES:
        return str(found)
    raise WorkloadError(f"{where}: type {quote(str(found))}; known are {', '.join(NODE_TYPES)}")


def _integer(found: Any, name: str, where: str) -> int:
    """Return a number, which JSON may have as a text."""
    if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) <= 20:
        found = int(found)
    if type(found) is not int or not 0 <= found < 1 << 64:
        raise WorkloadError(f"{where}: {name} is {quote(str(found)[:40])}; a number is expected")
    return found
