"""The layout of WQEs and CQEs: what goes in comes out, for all work that queue pairs take."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire import AddressHandle, Host, QPType, Sge, VerbsError
from rdmawire.errors import WireError
from rdmawire.ib.post_checks import POST_CHECKS, check_recv, check_send
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.memory import Bind, FastRegistration
from rdmawire.verbs.ah import GIDType
from rdmawire.verbs.enums import NetworkType, QPState, WCFlags, WCOpcode, WCStatus, WorkCompletion
from rdmawire.verbs.qp_attr import QPCap
from rdmawire.verbs.wqe import (
    CQE,
    RECV_OPCODE,
    UNIT_SIZE,
    WORK_QUEUE_TABLES,
    WQEControl,
    build_cqe,
    build_recv,
    build_send,
    parse_cqe,
    parse_recv,
    parse_send,
    segments_of,
)
from rdmawire.verbs.wr import (
    ATOMIC_SIZE,
    VERBS,
    BindMW,
    Local,
    RecvWR,
    RegMR,
    SendFlags,
    SendOpcode,
    SendWR,
)
from tests.effort import examples

HOST = Host()
_CQ = HOST.nic.create_cq(16)
_CAP = QPCap(1024, 1024, 4, 4, 256)
REGION = HOST.buffer(4096).region
FAST = HOST.nic.memory.alloc_mr(HOST.pd, 64)
WINDOW = HOST.nic.memory.alloc_mw(HOST.pd, 2)
FIND = HOST.nic.device.keys.find
EIGHT = {
    SendOpcode.ATOMIC_WRITE,
    SendOpcode.ATOMIC_CMP_AND_SWP,
    SendOpcode.ATOMIC_FETCH_AND_ADD,
}


def _qp(kind: QPType) -> QueuePair:
    domain = HOST.nic.open_xrcd()
    qp = HOST.nic.create_qp(kind, QPInit(HOST.pd, _CQ, _CQ, _CAP, xrc_domain=domain))
    qp.enter(QPState.RTS)
    return qp


QPS = {kind: _qp(kind) for kind in (QPType.RC, QPType.UC, QPType.UD, QPType.XRC_INI)}
WORK = [(kind, opcode) for kind in QPS for opcode in POST_CHECKS[kind]]


def numbers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << bits) - 1)


sges = st.lists(st.builds(Sge, numbers(64), numbers(32), numbers(32)), max_size=4).map(tuple)
eight = st.builds(Sge, numbers(64), st.just(ATOMIC_SIZE), numbers(32)).map(lambda sge: (sge,))
gids = st.binary(min_size=16, max_size=16).filter(lambda gid: gid[:12] != bytes(10) + b"\xff\xff")
handles = st.builds(
    AddressHandle,
    dmac=st.binary(min_size=6, max_size=6),
    dgid=gids,
    sgid=gids,
    hop_limit=numbers(8),
    traffic_class=numbers(8),
    flow_label=numbers(20),
    sl=numbers(3),
    vlan=st.none() | st.integers(0, 4094),
    port_num=st.just(1),
    gid_type=st.none() | st.sampled_from(GIDType),
    dlid=st.just(0),
    src_path_bits=st.just(0),
    is_global=st.just(True),
    sgid_index=st.none(),
)
binds = st.builds(
    BindMW,
    st.just(WINDOW),
    st.sampled_from((REGION, None)),
    st.builds(Bind, numbers(64), numbers(64), numbers(32), st.just(0), st.none(), rkey=numbers(32)),
)
registrations = st.builds(
    FastRegistration,
    numbers(32),
    numbers(64),
    numbers(64),
    numbers(32),
    st.lists(numbers(64), max_size=64).map(tuple),
    numbers(32),
)
FIELDS: dict[str, st.SearchStrategy[object]] = {
    "remote_address": numbers(64),
    "rkey": numbers(32),
    "compare_add": numbers(64),
    "swap": numbers(64),
    "remote_srqn": numbers(24),
    "placement": numbers(4),
    "selectivity": numbers(2),
    "length": numbers(32),
}


def flags_of(kind: QPType, wr: SendWR) -> int:
    """The flags that this work may have, but INLINE."""
    allowed = 0
    for flag in SendFlags.FENCE, SendFlags.SIGNALED, SendFlags.SOLICITED:
        try:
            check_send(QPS[kind], wr._replace(flags=flag.value))
        except VerbsError:
            continue
        allowed |= flag.value
    return allowed


@st.composite
def work(draw: st.DrawFn, kind: QPType, opcode: SendOpcode) -> SendWR:
    """Work of one kind, with all that it uses and nothing else."""
    rows = {row.name for segment in segments_of(kind, opcode) for row in segment.rows}
    fields = {name: draw(strategy) for name, strategy in FIELDS.items() if name in rows}
    if opcode in (SendOpcode.SEND_WITH_IMM, SendOpcode.RDMA_WRITE_WITH_IMM):
        fields["imm_data"] = draw(numbers(32))
    if opcode in (SendOpcode.SEND_WITH_INV, SendOpcode.LOCAL_INV):
        fields["invalidate_rkey"] = draw(numbers(32))
    if opcode is SendOpcode.BIND_MW:
        fields = {"bind": draw(binds)}
    elif opcode is SendOpcode.REG_MR:
        fields = {"reg": RegMR(FAST, draw(registrations))}
    elif VERBS[opcode].local is not Local.NONE:
        fields["sges"] = draw(eight if opcode in EIGHT else sges)
    if kind is QPType.UD and VERBS[opcode].only:
        fields |= {"ah": draw(handles), "remote_qpn": draw(numbers(24))}
        fields["remote_qkey"] = draw(numbers(32))
    wr = SendWR(opcode, **fields)  # type: ignore[arg-type]
    flags = flags_of(kind, wr) & draw(numbers(4))
    if VERBS[opcode].local is Local.SOURCE and draw(st.booleans()):
        size = (ATOMIC_SIZE, ATOMIC_SIZE) if opcode in EIGHT else (0, 256)
        data = draw(st.binary(min_size=size[0], max_size=size[1]))
        return wr._replace(sges=(), inline=data, flags=flags | SendFlags.INLINE)
    return wr._replace(flags=flags)


@pytest.mark.parametrize(("kind", "opcode"), WORK, ids=lambda value: value.name)
@settings(max_examples=examples(8))
@given(data=st.data())
def test_all_work_that_is_posted_comes_back_from_its_wqe(
    kind: QPType, opcode: SendOpcode, data: st.DataObject
) -> None:
    qp = QPS[kind]
    posted = check_send(qp, data.draw(work(kind, opcode)))
    index = data.draw(numbers(16))
    wqe = build_send(posted, qp.qp_num, index, kind)
    control = WQEControl.parse(wqe)
    assert (control.wqe_index, control.qpn) == (index, qp.qp_num)
    assert control.units * UNIT_SIZE == len(wqe)
    assert parse_send(wqe, kind, FIND) == posted._replace(wr_id=index)


@given(pieces=sges, index=numbers(16))
def test_all_receives_come_back_from_their_wqes(pieces: tuple[Sge, ...], index: int) -> None:
    qp = QPS[QPType.RC]
    posted = check_recv(qp, RecvWR(pieces))
    assert parse_recv(build_recv(posted, qp.qp_num, index)) == posted._replace(wr_id=index)


@given(
    wr_id=numbers(64),
    status=st.sampled_from(WCStatus),
    opcode=st.sampled_from(WCOpcode),
    counts=st.tuples(numbers(32), numbers(32), numbers(32)),
    inverted=st.booleans(),
    qps=st.tuples(numbers(24), numbers(24)),
    path=st.tuples(numbers(16), numbers(16), numbers(4), numbers(8)),
    vlan=st.none() | st.integers(0, 4094),
    smac=st.just(b"") | st.binary(min_size=6, max_size=6).filter(any),
    network=st.sampled_from(NetworkType),
    owner=numbers(1),
)
def test_all_completions_come_back_from_their_cqes(
    wr_id: int,
    status: WCStatus,
    opcode: WCOpcode,
    counts: tuple[int, int, int],
    inverted: bool,
    qps: tuple[int, int],
    path: tuple[int, int, int, int],
    vlan: int | None,
    smac: bytes,
    network: NetworkType,
    owner: int,
) -> None:
    vendor_err, byte_len, immediate = counts
    both = (0, immediate) if inverted else (immediate, 0)
    flags = WCFlags.WITH_INV.value if inverted else WCFlags.WITH_IMM.value
    wc = WorkCompletion(
        *(wr_id, status, opcode, vendor_err, byte_len, *both, *qps, flags, *path),
        *(vlan, smac, network),
    )
    cqe = CQE.parse(build_cqe(wc, owner))
    assert parse_cqe(cqe) == wc
    assert cqe.owner == owner


@given(data=st.binary(min_size=64, max_size=64))
def test_any_bytes_are_a_completion(data: bytes) -> None:
    assert isinstance(parse_cqe(CQE.parse(data)), WorkCompletion)


@given(
    kind=st.sampled_from([*QPS]), data=st.binary(max_size=320), opcode=st.sampled_from(SendOpcode)
)
def test_any_bytes_are_work_or_a_wire_error(kind: QPType, data: bytes, opcode: SendOpcode) -> None:
    padded = data.ljust(-(-len(data) // UNIT_SIZE) * UNIT_SIZE, b"\0")
    for wqe in (padded, padded[:3] + bytes((opcode,)) + padded[4:]):
        for parse in (lambda wqe: parse_send(wqe, kind, FIND), parse_recv):
            try:
                parse(wqe)
            except WireError:
                continue


def test_segments_are_whole_units() -> None:
    """Only inline data have a header of their own size."""
    sizes = {table.__name__: table.SIZE for table in WORK_QUEUE_TABLES}
    short = {"InlineSegment", "DoorbellRecord", "CQDoorbellRecord", "Doorbell"}
    assert {name for name, size in sizes.items() if size % UNIT_SIZE} == short
    assert sizes["CQE"] == 64


def test_what_a_wqe_cannot_hold_is_refused() -> None:
    inline = SendWR(SendOpcode.SEND, (Sge(0, 1, 1),), flags=SendFlags.INLINE)
    with pytest.raises(VerbsError, match="give inline, not sges"):
        build_send(inline, 1, 0)
    with pytest.raises(VerbsError, match="272 units"):
        build_recv(RecvWR((Sge(0, 1, 1),) * 271), 1, 0)
    with pytest.raises(VerbsError, match="none of SendOpcode"):
        build_send(SendWR(SendOpcode.SEND)._replace(opcode=77), 1, 0)
    with pytest.raises(WireError, match="opcode"):
        parse_recv(WQEControl(opcode=SendOpcode.SEND).build())
    reg = RegMR(FAST, FastRegistration(FAST.key, 0, 1, 1, (0,)))
    wqe = build_send(SendWR(SendOpcode.REG_MR, reg=reg), 1, 0)
    with pytest.raises(WireError, match="no region has the key"):
        parse_send(wqe, QPType.RC, lambda _: None)
    assert RECV_OPCODE not in VERBS


@pytest.mark.parametrize("native", [{"dlid": 3}, {"is_global": False}, {"src_path_bits": 1}])
def test_a_path_of_native_infiniband_has_no_wqe(native: dict[str, Any]) -> None:
    path = AddressHandle(bytes(6), bytes(16), bytes(16))._replace(**native)
    with pytest.raises(VerbsError, match="a WQE has no place for LIDs"):
        build_send(SendWR(SendOpcode.SEND, ah=path), 1, 0, QPType.UD)
