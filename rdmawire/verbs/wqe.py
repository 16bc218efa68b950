"""The layout of work queues in memory: WQEs, CQEs, doorbell records and doorbells.

A work queue is a ring of blocks of 64 bytes in registered memory, of a host or of a GPU. Its
producer writes work queue elements (WQEs), then the index after the last one into the queue's
doorbell record, then a :class:`Doorbell` to the adapter's doorbell page. The adapter writes
completion queue elements (CQEs) into a ring of its own, whose consumer writes its index into the
doorbell record of that ring. Numbers are big-endian.

A WQE begins on a block and consists of units of 16 bytes: a :class:`WQEControl`, the segments of
its opcode (:func:`segments_of`), and its local memory: a :class:`DataSegment` for each SGE, or an
:class:`InlineSegment` and the bytes themselves. It may wrap at the end of the ring. The layout is
rdmawire's own, similar to that of mlx5 (rdma-core, providers/mlx5/mlx5dv.h).
"""

from collections.abc import Callable
from enum import IntEnum
from errno import EINVAL
from typing import Any, Final, TypeVar

from rdmawire.errors import VerbsError, WireError
from rdmawire.memory.fast_reg import FastRegistration
from rdmawire.memory.key import Grant
from rdmawire.memory.mw import Bind, MemoryWindow
from rdmawire.memory.page import LAST_ADDRESS
from rdmawire.memory.region import Region
from rdmawire.verbs.ah import AddressHandle, GIDType
from rdmawire.verbs.enums import NetworkType, QPType, WCFlags, WCOpcode, WCStatus, WorkCompletion
from rdmawire.verbs.wr import INLINE, VERBS, BindMW, RecvWR, RegMR, SendOpcode, SendWR, Sge
from rdmawire.wire.header import Header, bits, raw
from rdmawire.wire.show import HEX, IPV6, MAC

BLOCK_SIZE: Final = 64
"""Size of a block in bytes; WQEs begin on one."""
UNIT_SIZE: Final = 16
"""Size of a unit in bytes; WQEs consist of units."""
MAX_UNITS: Final = 255
"""Maximum units of a WQE."""
INDEXES: Final = 1 << 16
"""Number of indexes of blocks and WQEs; the last is followed by 0."""

CONSUMER_INDEXES = 1 << 32
"""Number of consumer indexes; the last is followed by 0."""
MAX_BLOCKS: Final = INDEXES >> 1
"""Maximum blocks of a ring, so that an index that goes back is not mistaken for one ahead."""
RECV_OPCODE: Final = 0x80
"""The opcode of a receive WQE."""

_CLAUSE = "rdmawire"


class WQEControl(Header, clause=_CLAUSE, label="wqe_control"):
    """Control segment: begins each WQE.

    ``wqe_index`` is the index of its first block, ``units`` its length. ``immediate`` is the
    immediate data or the key to invalidate.
    """

    resv8: int = bits(8)
    wqe_index: int = bits(16)
    opcode: int = bits(8, enum=SendOpcode)
    qpn: int = bits(24, "", HEX)
    units: int = bits(8)
    resv24: int = bits(24)
    flags: int = bits(8, "", HEX)
    immediate: int = bits(32, "", HEX)


class AddressSegment(Header, clause=_CLAUSE, label="wqe_address"):
    """Address vector of a datagram: the path and the queue pair at its end.

    Rows whose ``has_`` row is 0 are not set; ``gid_type`` 0 is not set either.
    """

    resv8: int = bits(8)
    remote_qpn: int = bits(24, "", HEX)
    remote_qkey: int = bits(32, "", HEX)
    dmac: bytes = raw(6, "", MAC)
    has_vlan: int = bits(1)
    sl: int = bits(3)
    vlan: int = bits(12)
    dgid: bytes = raw(16, "", IPV6)
    sgid: bytes = raw(16, "", IPV6)
    traffic_class: int = bits(8, "", HEX)
    hop_limit: int = bits(8)
    port_num: int = bits(8)
    has_pkey_index: int = bits(1)
    resv5: int = bits(5)
    gid_type: int = bits(2, enum=GIDType)
    resv12: int = bits(12)
    flow_label: int = bits(20, "", HEX)
    pkey_index: int = bits(16)
    resv48: int = bits(48)


class SharedReceiveSegment(Header, clause=_CLAUSE, label="wqe_srq"):
    """The shared receive queue of XRC that a message is for."""

    resv8: int = bits(8)
    remote_srqn: int = bits(24, "", HEX)
    resv96: bytes = raw(12)


class RemoteSegment(Header, clause=_CLAUSE, label="wqe_remote"):
    """Remote address segment: where the peer's memory is, and its key."""

    remote_address: int = bits(64, "", HEX)
    rkey: int = bits(32, "", HEX)
    resv32: int = bits(32)


class AtomicSegment(Header, clause=_CLAUSE, label="wqe_atomic"):
    """Operands of an atomic operation: what to compare with or add, and what to swap in."""

    compare_add: int = bits(64, "", HEX)
    swap: int = bits(64, "", HEX)


class FlushSegment(Header, clause=_CLAUSE, label="wqe_flush"):
    """What a FLUSH covers: ``length`` bytes, and the fields of its FETH."""

    length: int = bits(32)
    placement: int = bits(4)
    selectivity: int = bits(2)
    resv2: int = bits(2)
    resv88: bytes = raw(11)


class BindSegment(Header, clause=_CLAUSE, label="wqe_bind"):
    """Bind of a memory window: the window's key and its next one, the region's key, and a range.

    ``lkey`` 0 stands for no region.
    """

    window_key: int = bits(32, "", HEX)
    rkey: int = bits(32, "", HEX)
    lkey: int = bits(32, "", HEX)
    access: int = bits(32, "", HEX)
    address: int = bits(64, "", HEX)
    length: int = bits(64)


class RegistrationSegment(Header, clause=_CLAUSE, label="wqe_registration"):
    """Fast registration: the region's key and its next one, its range, and its pages.

    ``page_count`` bus addresses follow, 8 bytes each.
    """

    region_key: int = bits(32, "", HEX)
    key: int = bits(32, "", HEX)
    iova: int = bits(64, "", HEX)
    length: int = bits(64)
    access: int = bits(32, "", HEX)
    page_size: int = bits(32)
    page_count: int = bits(16)
    resv112: bytes = raw(14)


class DataSegment(Header, clause=_CLAUSE, label="wqe_data"):
    """An SGE: ``byte_count`` bytes of local memory."""

    byte_count: int = bits(32)
    lkey: int = bits(32, "", HEX)
    address: int = bits(64, "", HEX)


class InlineSegment(Header, clause=_CLAUSE, label="wqe_inline"):
    """Begins inline data: ``byte_count`` bytes follow."""

    byte_count: int = bits(32)


class DoorbellRecord(Header, clause=_CLAUSE, label="doorbell_record"):
    """Doorbell record of a queue pair: the index after the last WQE of each of its queues."""

    resv16: int = bits(16)
    recv_index: int = bits(16)
    resv16_2: int = bits(16)
    send_index: int = bits(16)


class CQDoorbellRecord(Header, clause=_CLAUSE, label="cq_doorbell_record"):
    """Doorbell record of a completion queue: how many CQEs were consumed, modulo 2**32."""

    consumer_index: int = bits(32)
    resv32: int = bits(32)


class DoorbellType(IntEnum):
    """The action of a doorbell."""

    SEND = 1
    """Fetch work from the send queue of a queue pair."""
    RECV = 2
    """Fetch receives from the receive queue of a queue pair."""
    ARM = 3
    """Report the next completion of a completion queue as an event."""
    ARM_SOLICITED = 4
    """Report its next completion that is solicited or failed."""


class Doorbell(Header, clause=_CLAUSE, label="doorbell"):
    """What is stored to an adapter's doorbell page: ``number`` is that of the queue."""

    resv24: int = bits(24)
    type: int = bits(8, enum=DoorbellType)
    resv8: int = bits(8)
    number: int = bits(24, "", HEX)


class CQE(Header, clause=_CLAUSE, label="cqe"):
    """Completion queue element.

    ``wr_id`` of work from a ring is the index of its WQE. ``immediate`` is the immediate data or
    the key that was invalidated. ``owner`` is 1 in the first pass through the ring, 0 in the
    second, and so on: a consumer knows by it whether the adapter has written the element.
    """

    wr_id: int = bits(64, "", HEX)
    vendor_err: int = bits(32, "", HEX)
    byte_len: int = bits(32)
    immediate: int = bits(32, "", HEX)
    resv8: int = bits(8)
    qpn: int = bits(24, "", HEX)
    resv8_2: int = bits(8)
    src_qp: int = bits(24, "", HEX)
    status: int = bits(8, enum=WCStatus)
    opcode: int = bits(8, enum=WCOpcode)
    flags: int = bits(8, "", HEX)
    network_type: int = bits(4, enum=NetworkType)
    sl: int = bits(4)
    has_vlan: int = bits(1)
    resv3: int = bits(3)
    vlan: int = bits(12)
    smac: bytes = raw(6, "", MAC)
    pkey_index: int = bits(16)
    slid: int = bits(16)
    dlid_path_bits: int = bits(8)
    resv144: bytes = raw(18)
    resv7: int = bits(7)
    owner: int = bits(1)


WORK_QUEUE_TABLES: Final[tuple[type[Header], ...]] = (
    *(WQEControl, AddressSegment, SharedReceiveSegment, RemoteSegment, AtomicSegment),
    *(FlushSegment, BindSegment, RegistrationSegment, DataSegment, InlineSegment),
    *(DoorbellRecord, CQDoorbellRecord, Doorbell, CQE),
)
"""All tables of this module, for reference pages and tests."""

_REMOTE = (RemoteSegment,)
_SEGMENTS: dict[int, tuple[type[Header], ...]] = {
    SendOpcode.RDMA_WRITE: _REMOTE,
    SendOpcode.RDMA_WRITE_WITH_IMM: _REMOTE,
    SendOpcode.RDMA_READ: _REMOTE,
    SendOpcode.ATOMIC_WRITE: _REMOTE,
    SendOpcode.ATOMIC_CMP_AND_SWP: (RemoteSegment, AtomicSegment),
    SendOpcode.ATOMIC_FETCH_AND_ADD: (RemoteSegment, AtomicSegment),
    SendOpcode.FLUSH: (RemoteSegment, FlushSegment),
    SendOpcode.BIND_MW: (BindSegment,),
    SendOpcode.REG_MR: (RegistrationSegment,),
}
_FIRST_SEGMENTS: dict[QPType, tuple[type[Header], ...]] = {
    QPType.UD: (AddressSegment,),
    QPType.XRC_INI: (SharedReceiveSegment,),
}

_IMMEDIATE: dict[int, str] = {
    SendOpcode.SEND_WITH_IMM: "imm_data",
    SendOpcode.RDMA_WRITE_WITH_IMM: "imm_data",
    SendOpcode.SEND_WITH_INV: "invalidate_rkey",
    SendOpcode.LOCAL_INV: "invalidate_rkey",
}
"""The field of a work request that is in :attr:`WQEControl.immediate`, by opcode."""

FindKey = Callable[[int], Grant | None]
"""The region or window with a key; ``None`` if there is none."""


def segments_of(qp_type: QPType, opcode: int) -> tuple[type[Header], ...]:
    """The segments that follow the control segment of a send WQE, before its local memory."""
    first = _FIRST_SEGMENTS.get(qp_type, ()) if VERBS[opcode].only else ()
    return first + _SEGMENTS.get(opcode, ())


# Work requests to WQEs.


def build_send(wr: SendWR, qpn: int, index: int, qp_type: QPType = QPType.RC) -> bytes:
    """Build the WQE of a send for queue pair ``qpn``; ``index`` is that of its first block.

    Fields that the opcode does not use are left out, and so is ``wr_id``: completions have the
    index. ``VerbsError`` EINVAL for an invalid opcode, for inline data given as SGEs (the producer
    must copy them to ``inline``), and for a WQE of more than 255 units. ``WireError`` for a number
    that does not fit its field.
    """
    if wr.opcode not in VERBS:
        raise VerbsError(f"opcode {wr.opcode!r} is none of SendOpcode", EINVAL)
    if wr.flags & INLINE and wr.sges:
        raise VerbsError("a WQE holds inline data themselves: give inline, not sges", EINVAL)
    parts = [_build_segment(segment, wr) for segment in segments_of(qp_type, wr.opcode)]
    if wr.flags & INLINE:
        parts.append(InlineSegment(len(wr.inline)).build() + wr.inline)
    else:
        parts.append(_data_segments(wr.sges))
    name = _IMMEDIATE.get(wr.opcode)
    immediate = getattr(wr, name) if name else 0
    control = WQEControl(
        wqe_index=index, opcode=wr.opcode, qpn=qpn, flags=int(wr.flags), immediate=immediate
    )
    return _assembled(control, b"".join(parts))


def build_recv(wr: RecvWR, qpn: int, index: int) -> bytes:
    """Build the WQE of a receive for queue pair ``qpn``; errors are those of :func:`build_send`."""
    control = WQEControl(wqe_index=index, opcode=RECV_OPCODE, qpn=qpn)
    return _assembled(control, _data_segments(wr.sges))


def _assembled(control: WQEControl, body: bytes) -> bytes:
    """Build a WQE, padded to units."""
    units = 1 + -(-len(body) // UNIT_SIZE)
    if units > MAX_UNITS:
        raise VerbsError(f"a WQE of {units} units: at most {MAX_UNITS} are allowed", EINVAL)
    return control.replace(units=units).build() + body.ljust((units - 1) * UNIT_SIZE, b"\0")


def _data_segments(sges: tuple[Sge, ...]) -> bytes:
    return b"".join(DataSegment(length, lkey, address).build() for address, length, lkey in sges)


def _build_segment(segment: type[Header], wr: SendWR) -> bytes:
    if segment in _BUILDERS:
        return _BUILDERS[segment](wr)
    fields = {row.name: getattr(wr, row.name) for row in segment.rows if row.name in _WR_FIELDS}
    return segment(**fields).build()


_WR_FIELDS: Final = frozenset(SendWR._fields)


def _build_address(wr: SendWR) -> bytes:
    ah = wr.ah
    if ah is None:
        raise VerbsError("a datagram needs an address handle", EINVAL)
    if ah.dlid or ah.src_path_bits or not ah.is_global:
        raise VerbsError("a WQE has no place for LIDs: post the work with post_send", EINVAL)
    return AddressSegment(
        remote_qpn=wr.remote_qpn,
        remote_qkey=wr.remote_qkey,
        has_vlan=ah.vlan is not None,
        vlan=ah.vlan or 0,
        has_pkey_index=wr.pkey_index is not None,
        pkey_index=wr.pkey_index or 0,
        gid_type=ah.gid_type or 0,
        **{name: getattr(ah, name) for name in _PATH},
    ).build()


_PATH: Final = (
    "dmac", "dgid", "sgid", "hop_limit", "traffic_class", "flow_label", "sl", "port_num",
)  # fmt: skip
"""The address handle's fields in :class:`AddressSegment`."""


def _build_bind(wr: SendWR) -> bytes:
    if wr.bind is None:
        raise VerbsError("BIND_MW needs a bind", EINVAL)
    window, region, bind = wr.bind
    lkey = 0 if region is None else region.lkey
    keys = (window.rkey, bind.rkey, lkey)
    return BindSegment(*keys, bind.access, bind.address, bind.length).build()


def _build_registration(wr: SendWR) -> bytes:
    if wr.reg is None:
        raise VerbsError("REG_MR needs a registration", EINVAL)
    region, (key, iova, length, access, pages, page_size) = wr.reg
    fields = (region.lkey, key, iova, length, access, page_size, len(pages))
    listed = b"".join(page.to_bytes(_PAGE_BYTES, "big") for page in pages)
    return RegistrationSegment(*fields).build() + listed


_PAGE_BYTES: Final = 8
_BUILDERS: dict[type[Header], Callable[[SendWR], bytes]] = {
    AddressSegment: _build_address,
    BindSegment: _build_bind,
    RegistrationSegment: _build_registration,
}
"""Builders of segments that are not copied from fields of a work request."""


# WQEs to work requests.


def parse_send(wqe: bytes, qp_type: QPType, find: FindKey) -> SendWR:
    """Parse a send WQE into a work request; its ``wr_id`` is the index of the WQE.

    ``find`` finds the regions and windows that binds and registrations name. ``WireError`` for an
    invalid opcode, segments beyond the end, and unknown keys.
    """
    control = WQEControl.parse(wqe)
    if control.opcode not in VERBS:
        raise WireError(f"WQE opcode {control.opcode} is none of SendOpcode")
    opcode = SendOpcode(control.opcode)
    fields: dict[str, Any] = {"wr_id": control.wqe_index, "flags": control.flags}
    if opcode in _IMMEDIATE:
        fields[_IMMEDIATE[opcode]] = control.immediate
    at = WQEControl.SIZE
    for segment in segments_of(qp_type, opcode):
        found = segment.parse(wqe, at)
        at += segment.SIZE
        if isinstance(found, RegistrationSegment):
            pages = _pages(wqe, at, found.page_count)
            fields["reg"] = _registration(found, pages, find)
            return SendWR(opcode, **fields)
        fields |= _fields_of(found, find)
    if control.flags & INLINE:
        fields["inline"] = _inline(wqe, at)
    else:
        fields["sges"] = _sges(wqe, at)
    return SendWR(opcode, **fields)


def parse_recv(wqe: bytes) -> RecvWR:
    """Parse a receive WQE. ``WireError`` for any other WQE."""
    control = WQEControl.parse(wqe)
    if control.opcode != RECV_OPCODE:
        raise WireError(f"WQE opcode {control.opcode} in a receive queue, not {RECV_OPCODE}")
    return RecvWR(_sges(wqe, WQEControl.SIZE), control.wqe_index)


def _sges(wqe: bytes, at: int) -> tuple[Sge, ...]:
    starts = range(at, len(wqe), DataSegment.SIZE)
    segments = [DataSegment.parse(wqe, start) for start in starts]
    return tuple(Sge(one.address, one.byte_count, one.lkey) for one in segments)


def _inline(wqe: bytes, at: int) -> bytes:
    length = InlineSegment.parse(wqe, at).byte_count
    return _slice(wqe, at + InlineSegment.SIZE, length)


def _pages(wqe: bytes, at: int, count: int) -> tuple[int, ...]:
    listed = _slice(wqe, at, count * _PAGE_BYTES)
    return tuple(
        int.from_bytes(listed[start : start + _PAGE_BYTES], "big")
        for start in range(0, len(listed), _PAGE_BYTES)
    )


def _slice(wqe: bytes, at: int, length: int) -> bytes:
    if at + length > len(wqe):
        raise WireError(f"{length} bytes at {at} of a WQE of {len(wqe)} bytes")
    return wqe[at : at + length]


def _fields_of(segment: Header, find: FindKey) -> dict[str, Any]:
    """The fields of a work request that a segment sets."""
    if isinstance(segment, AddressSegment):
        return _address(segment)
    if isinstance(segment, BindSegment):
        return {"bind": _bind(segment, find)}
    names = (row.name for row in type(segment).rows if row.name in _WR_FIELDS)
    return {name: getattr(segment, name) for name in names}


def _address(segment: AddressSegment) -> dict[str, Any]:
    ah = AddressHandle(
        vlan=segment.vlan if segment.has_vlan else None,
        gid_type=_gid_type(segment.gid_type),
        **{name: getattr(segment, name) for name in _PATH},
    )
    return {
        "ah": ah,
        "remote_qpn": segment.remote_qpn,
        "remote_qkey": segment.remote_qkey,
        "pkey_index": segment.pkey_index if segment.has_pkey_index else None,
    }


def _gid_type(number: int) -> GIDType | None:
    if number > max(GIDType):
        raise WireError(f"gid_type {number} of an address segment is none of GIDType")
    return GIDType(number) if number else None


def _bind(segment: BindSegment, find: FindKey) -> BindMW:
    window = find(segment.window_key)
    if not isinstance(window, MemoryWindow):
        raise WireError(f"no memory window has the key {segment.window_key:#x}")
    region = _region(segment.lkey, find) if segment.lkey else None
    bind = Bind(segment.address, segment.length, segment.access, rkey=segment.rkey)
    return BindMW(window, region, bind)


def _region(key: int, find: FindKey) -> Region:
    region = find(key)
    if not isinstance(region, Region):
        raise WireError(f"no region has the key {key:#x}")
    return region


def _registration(segment: RegistrationSegment, pages: tuple[int, ...], find: FindKey) -> RegMR:
    region = _region(segment.region_key, find)
    key, iova, length, access = segment.key, segment.iova, segment.length, segment.access
    return RegMR(region, FastRegistration(key, iova, length, access, pages, segment.page_size))


# Completions.


def build_cqe(wc: WorkCompletion, owner: int) -> bytes:
    """Build the CQE of a completion, with this owner bit."""
    inverted = wc.wc_flags & WCFlags.WITH_INV.value
    return CQE(
        wr_id=wc.wr_id & LAST_ADDRESS if wc.wr_id.__class__ is int else 0,
        vendor_err=wc.vendor_err,
        byte_len=wc.byte_len,
        immediate=wc.invalidated_rkey if inverted else wc.imm_data,
        qpn=wc.qp_num,
        src_qp=wc.src_qp,
        status=wc.status,
        opcode=wc.opcode,
        flags=int(wc.wc_flags),
        network_type=wc.network_hdr_type,
        sl=wc.sl,
        has_vlan=wc.vlan_id is not None,
        vlan=wc.vlan_id or 0,
        smac=wc.smac or bytes(6),
        pkey_index=wc.pkey_index,
        slid=wc.slid,
        dlid_path_bits=wc.dlid_path_bits,
        owner=owner,
    ).build()


def parse_cqe(cqe: CQE) -> WorkCompletion:
    """Parse a CQE into a completion; an invalid status or opcode is an error.

    Such a CQE was not written by an adapter. Its status is ``GENERAL_ERR``.
    """
    status = _enum(WCStatus, cqe.status, WCStatus.GENERAL_ERR)
    opcode = _enum(WCOpcode, cqe.opcode, WCOpcode.SEND)
    network = _enum(NetworkType, cqe.network_type, NetworkType.IB)
    invalidated = cqe.flags & WCFlags.WITH_INV.value
    return WorkCompletion(
        cqe.wr_id,
        status,
        opcode,
        cqe.vendor_err,
        cqe.byte_len,
        0 if invalidated else cqe.immediate,
        cqe.immediate if invalidated else 0,
        cqe.qpn,
        cqe.src_qp,
        cqe.flags,
        cqe.pkey_index,
        cqe.slid,
        cqe.sl,
        cqe.dlid_path_bits,
        cqe.vlan if cqe.has_vlan else None,
        cqe.smac if any(cqe.smac) else b"",
        network,
    )


_E = TypeVar("_E", bound=IntEnum)


def _enum(enum: type[_E], number: int, otherwise: _E) -> _E:
    try:
        return enum(number)
    except ValueError:
        return otherwise


def owner_of(index: int, entries: int) -> int:
    """The owner bit of CQE number ``index`` (from 0 on) in a ring of ``entries``."""
    return 1 - (index // entries & 1)
