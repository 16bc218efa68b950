"""Checks of crafted packets: keys that exclude or need each other, and fields that they have."""

from collections.abc import Iterator

from rdmawire.fabric.field import named, usual_name
from rdmawire.terminal import quote
from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import NodeError, Pairs, listed
from rdmawire.traffic.scenario.model.connection import ConnectionPlan
from rdmawire.traffic.scenario.model.packet import HEADERS_BY_NAME
from rdmawire.traffic.scenario.model.step import StepPlan
from rdmawire.traffic.scenario.section import Found
from rdmawire.verbs.ah import GIDType
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, GRH, IETH, RETH, XRCETH, AtomicETH
from rdmawire.wire.inet import UDP, Ethernet, IPv4, IPv6
from rdmawire.wire.packet import LAYOUTS

_OF_MEMORY = (RETH, AtomicETH, IETH)
"""Headers that name memory of the peer."""
_COMPUTED = ("psn", "to", "va_offset", "rkey_offset", "payload", "headers", "pad", "queue")
"""Keys that say how the bytes after the headers of the network are made."""


def check_packet(plan: StepPlan, found: Found, context: ParseContext) -> Iterator[NodeError]:
    """Find the mistakes of a crafted packet."""
    if plan.verb != "inject":
        return
    if not {"opcode", "hex"} & found.nodes.keys():
        yield NodeError(found.mark, "inject without a packet", "opcode, or hex")
    for name in _COMPUTED if "hex" in found.nodes else ():
        if name in found.nodes:
            expected = "a key that 'hex' does not replace: fields, icrc"
            yield NodeError(found.at(name), f"{name!r} besides 'hex'", expected)
    headers = _headers(plan)
    yield from _memory(plan, found, headers)
    yield from _queue(plan, found, headers, context)
    if headers is not None:
        yield from _fields(found, (*_network(plan, context), BTH, *headers))


def _headers(plan: StepPlan) -> tuple[type[Header], ...] | None:
    """Return the extended headers; ``None`` for an opcode that the standard does not have."""
    names, opcode = plan.values.get("headers"), plan.values.get("opcode")
    if isinstance(names, tuple):
        return tuple(HEADERS_BY_NAME[name] for name in names)
    layout = LAYOUTS.get(opcode) if isinstance(opcode, int) else None
    if layout is None:
        return () if "hex" in plan.values else None
    return layout.headers


def _memory(
    plan: StepPlan, found: Found, headers: tuple[type[Header], ...] | None
) -> Iterator[NodeError]:
    """Memory is for headers that name memory; offsets are of memory."""
    needs = "to" in found.nodes and headers is not None and "hex" not in found.nodes
    if needs and not {*_OF_MEMORY} & {*(headers or ())}:
        expected = f"a packet with one of {listed(table.label for table in _OF_MEMORY)}"
        yield NodeError(found.at("to"), "'to' of a packet without such a header", expected)
    for name in ("va_offset", "rkey_offset"):
        if name in found.nodes and plan.remote is None and "to" not in found.nodes:
            yield NodeError(found.at(name), f"{name!r} without 'to'", "'to' besides")


def _queue(
    plan: StepPlan,
    found: Found,
    headers: tuple[type[Header], ...] | None,
    context: ParseContext,
) -> Iterator[NodeError]:
    """A shared receive queue is one of the peer, in a packet that names one."""
    queue, connection = plan.values.get("queue"), _connection(plan, context)
    if queue is None or plan.end is None or connection is None or "hex" in found.nodes:
        return
    if headers is not None and XRCETH not in headers:
        yield NodeError(found.at("queue"), "'queue' of a packet without an xrceth", "an XRC packet")
    peer = next(host for host in connection.ends if host != plan.end.host)
    known = context.names.of(peer, "shared receives")
    if queue not in known:
        what = f"a shared receive queue of {peer}"
        name = str(queue)
        yield NodeError(found.at("queue"), f"queue {quote(name)}", what, word=name, known=(*known,))


def _connection(plan: StepPlan, context: ParseContext) -> ConnectionPlan | None:
    return None if plan.end is None else context.connections.get(plan.end.connection)


def _network(plan: StepPlan, context: ParseContext) -> tuple[type[Header], ...]:
    """Return the headers before the BTH: of IPv6 if some host has an IPv6 address."""
    connection = _connection(plan, context)
    if connection is not None and connection.gid_type == GIDType.ROCE_V1.name:
        return Ethernet, GRH
    hosts = context.hosts.values()
    is_ipv6 = any(":" in (host.address or "") for host in hosts)
    return Ethernet, IPv6 if is_ipv6 else IPv4, UDP


def _fields(found: Found, headers: tuple[type[Header], ...]) -> Iterator[NodeError]:
    """Fields are of headers that the packet has."""
    node = found.nodes.get("fields")
    for name, _ in node.pairs if isinstance(node, Pairs) else ():
        tables = {field.table for field in named(usual_name(name.text))}
        if not tables & {*headers}:
            labels = listed(dict.fromkeys(table.label for table in headers))
            yield NodeError(
                name.mark, f"field {quote(name.text)}", f"a field of its headers: {labels}"
            )
