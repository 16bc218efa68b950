"""What came of a case: its frames, and all that a test bench must know, ready for JSON."""

from collections.abc import Iterator
from hashlib import sha256
from ipaddress import IPv6Address
from typing import Any, NamedTuple

from rdmawire.memory import Access
from rdmawire.verbs import (
    QPType,
    WCFlags,
    WCOpcode,
    WCStatus,
    WorkCompletion,
    is_ipv4,
    udp_source_port,
)
from tools.make_captures.golden.case import (
    ALTERNATES,
    MEMORY,
    OTHER,
    XRC_SRQ,
    Action,
    Case,
    Memory,
    Rearm,
    Register,
    Work,
    text,
)
from tools.make_captures.golden.shown import shown
from tools.make_captures.golden.stage import Party, Sent, Stage

EPOCH_NS = 1_700_000_000_000_000_000
"""When the first case of a capture begins, in nanoseconds since 1970."""
GAP = 1_000_000
"""Nanoseconds to whose multiple the next case waits."""

Object = dict[str, Any]


class Played(NamedTuple):
    """A case that was played. ``sent`` are its frames, ``details`` what is said of it besides."""

    name: str
    shows: str
    sent: list[Sent]
    details: Object


class Placed(NamedTuple):
    """A case in a capture: its first and last frame, from 1 on, and when it begins (ns)."""

    played: Played
    first: int
    last: int
    start: int


def placed(cases: list[Played]) -> Iterator[Placed]:
    """One case after the other."""
    start, first = 0, 1
    for played in cases:
        last = first + len(played.sent) - 1
        yield Placed(played, first, last, start)
        ended = start + max((sent.time for sent in played.sent), default=0)
        start, first = (ended // GAP + 1) * GAP, last + 1


def play(case: Case) -> Played:
    """Play a case, and tell all about it."""
    stage = Stage(case).run()
    details: Object = {"service": case.kind.name.removesuffix("_INI")}
    if case.lost:
        details["lost"] = list(case.lost)
    if case.late:
        details["late"] = {str(number): wait for number, wait in case.late.items()}
    if case.fault is not None:
        details["fault"] = case.fault.name
    if case.rate:
        details["bits_per_second"] = case.rate
    if scripted := [number for number, sent in enumerate(stage.sent, 1) if sent.scripted]:
        details["scripted"] = scripted
    for who in case.ends:
        details[who] = _end(who, case)
    details["does"] = [action_to(action) for action in case.does]
    details["comes_to"] = {
        who: outcome(party) for who, party in stage.parties.items() if not party.end.silent
    }
    return Played(case.name, shown(case, stage.sent), stage.sent, details)


ATTRIBUTES = (
    *("sq_psn", "rq_psn", "max_rd_atomic", "max_dest_rd_atomic", "min_rnr_timer"),
    *("timeout", "retry_cnt", "rnr_retry"),
)
"""Attributes of a queue pair that are told as they are."""


def _end(who: str, case: Case) -> Object:
    end, peer = case.ends[who], case.ends[OTHER[who]]
    attributes = end.attributes
    told: Object = {
        "mac": end.place.mac.hex(":"),
        "address": _address(end.place.gid),
        "udp_source_port": udp_source_port(end.flow_label, end.qpn, peer.qpn),
        "traffic_class": end.traffic_class,
        "flow_label": end.flow_label,
        "qpn": end.qpn,
        "path_mtu": attributes.path_mtu.bytes,
        **{name: getattr(attributes, name) for name in ATTRIBUTES},
        "qp_access_flags": _rights(attributes.qp_access_flags),
        **_memory("memory", end.memory),
    }
    kinds = {type(action) for action in case.does}
    if Register in kinds:
        told |= _memory("fast", end.fast)
    if Rearm in kinds:
        told["alternate_address"] = _address(ALTERNATES[who].gid)
    if case.kind is QPType.UD:
        told["qkey"] = attributes.qkey
    if case.kind_of(who) is QPType.XRC_TGT:
        told["srqn"] = XRC_SRQ
    return told | {flag: True for flag in FLAGS if getattr(end, flag)}


def _memory(name: str, memory: Memory) -> Object:
    return {
        f"{name}_va": memory.va,
        f"{name}_rkey": memory.rkey,
        f"{name}_bytes": memory.length,
        f"{name}_access": _rights(memory.access),
    }


FLAGS = ("shared", "silent", "notifies")
"""What an end may be besides."""


def _address(gid: bytes) -> str:
    address = IPv6Address(gid)
    return str(address.ipv4_mapped if is_ipv4(gid) else address)


def _rights(access: int) -> list[str]:
    return [flag.name for flag in Access if access & flag and flag.name]


def action_to(action: Action) -> Object:
    """An action, without what is as usual."""
    usual = action._field_defaults
    do = action.do.name if isinstance(action, Work) else type(action).__name__.upper()
    told: Object = {"at": action.at, "who": action.who, "do": do}
    for name, value in zip(action._fields, action, strict=True):
        if name not in told and (name not in usual or value != usual[name]):
            told[name] = value
    return told


def outcome(party: Party) -> Object:
    """What a case comes to at one end: completions, state, events, drops, changed memory."""
    told: Object = {"completions": [_completion(done) for done in party.poll()]}
    told["state"] = party.qp.state.name
    events = [type(event).__name__ for event in party.events()]
    if events:
        told["events"] = events
    drops = dict(sorted((drop.name, count) for drop, count in party.nic.drops.items()))
    if drops:
        told["drops"] = drops
    if (changed := _changed(party)) is not None:
        told["memory_sha256"] = changed
    return told


def _changed(party: Party) -> str | None:
    """The digest of the memory that a peer may reach, if it is no more as it was."""
    memory = party.region.memory
    if party.space.mapping_at(memory.base) is None:
        return None
    data = memory.read(memory.base, MEMORY)
    return None if data == text(MEMORY) else sha256(data).hexdigest()


def _completion(done: WorkCompletion) -> Object:
    told: Object = {"does": done.wr_id, "status": done.status.name}
    if done.status is WCStatus.SUCCESS and done.opcode >= WCOpcode.RECV:
        told["bytes"] = done.byte_len
        if done.wc_flags & WCFlags.WITH_IMM:
            told["imm_data"] = done.imm_data
        if done.wc_flags & WCFlags.WITH_INV:
            told["invalidated_rkey"] = done.invalidated_rkey
    return told
