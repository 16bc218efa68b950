"""What callers may get wrong in a verb is a ``VerbsError``, there and then, and changes nothing."""

from collections.abc import Callable
from errno import EINVAL, EOPNOTSUPP
from itertools import product
from typing import Any, NamedTuple

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.host import Host
from rdmawire.fabric.pair import ATTRIBUTES, CAP, End, Pair
from rdmawire.ib import FlowRule
from rdmawire.ib.engine import Nic
from rdmawire.ib.qp import QPInit
from rdmawire.memory.address_space import AddressSpace
from rdmawire.memory.fast_reg import FastRegistration
from rdmawire.memory.mw import Bind
from rdmawire.verbs.ah import AddressHandle
from rdmawire.verbs.enums import QPState, QPType, WCStatus
from rdmawire.verbs.qp_attr import QP_TRANSITIONS, QPAttributes, QPAttrMask, QPCap
from rdmawire.verbs.srq import XRCReceiver
from rdmawire.verbs.wr import BindMW, RecvWR, RegMR, SendFlags, SendOpcode, SendWR, Sge
from tests.ib.stage import fitting


class Alien(NamedTuple):
    """What is a number to many libraries, but no ``int``."""

    number: int = 3

    def __index__(self) -> int:
        return self.number


VALUES: list[Any] = [
    None, "", "text", b"", b"abc", 1.5, float("nan"), -1, 1 << 24, 1 << 32, 1 << 64, 1 << 20_000,
    [], [1, 2], (), {}, set(), object(), Alien(), True, int, bytearray(b"ab"),
]  # fmt: skip


def allowed(do: Callable[[], object]) -> bool:
    """Whether a verb goes through; anything but a ``VerbsError`` is raised."""
    refusal = ""
    try:
        do()
    except VerbsError as error:
        refusal = str(error)
    assert len(refusal) < 600
    return not refusal


def go_on(pair: Pair) -> None:
    """What a verb let pass breaks nothing later."""
    pair.drive(until=10_000_000_000)
    for end in (pair.client, pair.server):
        end.poll()


def work_for(end: End, opcode: SendOpcode) -> SendWR:
    """Work that is right, so that one field of it may be made wrong."""
    window = end.nic.memory.alloc_mw(end.pd, 2)
    region = end.nic.memory.alloc_mr(end.pd, 1)
    page = end.region.address & -4096
    bind = Bind(end.region.address, 8, 4, rkey=window.key + 1)
    wr = SendWR(
        opcode,
        (end.region.sge(8),),
        remote_address=end.peer.region.address,
        rkey=end.peer.region.rkey,
        ah=end.path_to(end.peer),
        remote_qpn=end.peer.qp.qp_num,
        remote_qkey=0x11,
        placement=1,
        length=8,
        bind=BindMW(window, end.region.region, bind),
        reg=RegMR(region, FastRegistration(region.key, page, 8, 15, [page])),
    )
    return fitting(wr, end.qp.type)


@pytest.mark.parametrize("kind", [QPType.RC, QPType.UD])
@pytest.mark.parametrize("opcode", SendOpcode)
@pytest.mark.parametrize("field", SendWR._fields)
def test_every_field_of_send_work(kind: QPType, opcode: SendOpcode, field: str) -> None:
    """Work that is refused changes nothing: the same pair is given the next, until it fails."""
    pair = Pair(kind=kind)
    known = opcode in pair.client.qp.service.verbs
    for value, flags in product(VALUES, FLAGS if known else FLAGS[:1]):
        wr = work_for(pair.client, opcode)._replace(flags=flags)._replace(**{field: value})
        if not allowed(lambda wr=wr, pair=pair: _post(pair.client, wr)):  # type: ignore[misc]
            assert not pair.client.nic.transmit(0)
            continue
        pair.server.receive(4000)
        go_on(pair)
        if {pair.client.qp.state, pair.server.qp.state} != {QPState.RTS}:
            pair = Pair(kind=kind)


FLAGS = (SendFlags.SIGNALED, SendFlags.INLINE)


def _post(end: End, wr: SendWR) -> None:
    end.nic.post_send(end.qp, [wr])


@pytest.mark.parametrize("field", Sge._fields)
@pytest.mark.parametrize("pieces", [1, 2])
def test_every_field_of_a_piece_of_memory(field: str, pieces: int) -> None:
    for value in VALUES:
        pair = Pair()
        end = pair.client
        sges = (end.region.sge(8)._replace(**{field: value}),) * pieces
        for opcode in (SendOpcode.SEND, SendOpcode.RDMA_READ):
            wr = work_for(end, opcode)._replace(sges=sges)
            allowed(lambda wr=wr, end=end: _post(end, wr))  # type: ignore[misc]
        srq = end.nic.create_srq(end.pd, 9, 4)
        allowed(lambda end=end, sges=sges: end.nic.post_recv(end.qp, [RecvWR(sges)]))  # type: ignore[misc]
        allowed(lambda end=end, srq=srq, sges=sges: end.nic.post_srq_recv(srq, [RecvWR(sges)]))  # type: ignore[misc]
        pair.server.send(b"to the receive")
        go_on(pair)


@pytest.mark.parametrize("name", [*BindMW._fields, *Bind._fields])
def test_every_field_of_a_bind(name: str) -> None:
    for value in VALUES:
        pair = Pair()
        wr = work_for(pair.client, SendOpcode.BIND_MW)
        assert wr.bind is not None
        if name in Bind._fields:
            bind = wr.bind._replace(bind=wr.bind.bind._replace(**{name: value}))
        else:
            bind = wr.bind._replace(**{name: value})
        if allowed(lambda pair=pair, wr=wr, bind=bind: _post(pair.client, wr._replace(bind=bind))):  # type: ignore[misc]
            go_on(pair)


@pytest.mark.parametrize("name", [*RegMR._fields, *FastRegistration._fields])
def test_every_field_of_a_fast_registration(name: str) -> None:
    for value in [*VALUES, [None], ["a"], [1 << 64], [1.5]]:
        pair = Pair()
        wr = work_for(pair.client, SendOpcode.REG_MR)
        assert wr.reg is not None
        if name in FastRegistration._fields:
            changed = wr.reg.registration._replace(**{name: value})
            reg = wr.reg._replace(registration=changed)
        else:
            reg = wr.reg._replace(**{name: value})
        if allowed(lambda pair=pair, wr=wr, reg=reg: _post(pair.client, wr._replace(reg=reg))):  # type: ignore[misc]
            go_on(pair)


@pytest.mark.parametrize("field", QPAttributes._fields)
@pytest.mark.parametrize("start", [QPState.INIT, QPState.RTR])
def test_every_attribute(field: str, start: QPState) -> None:
    for value in VALUES:
        host = Host()
        cq = host.nic.create_cq(9)
        qp = host.nic.create_qp(QPType.RC, QPInit(host.pd, cq, cq, CAP))
        path = host.path_to(Host(2))
        wanted = ATTRIBUTES._replace(ah=path, alt_ah=path, dest_qp_num=9)
        for state in (QPState.INIT, QPState.RTR, QPState.RTS):
            needs = QP_TRANSITIONS[QPType.RC, qp.state, state]
            mask = (needs.required | needs.optional | QPAttrMask.STATE) & ~QPAttrMask.CUR_STATE
            given = wanted._replace(qp_state=state)
            if qp.state is start:
                given = given._replace(**{field: value})
            before = (qp.state, host.nic.query_qp(qp))
            if not allowed(
                lambda host=host, qp=qp, given=given, mask=mask: host.nic.modify_qp(qp, given, mask)  # type: ignore[misc]
            ):
                assert (qp.state, host.nic.query_qp(qp)) == before
                break
        if qp.state is QPState.RTS:
            host.nic.post_send(qp, [SendWR(SendOpcode.SEND)])
            assert host.nic.transmit(0)


@pytest.mark.parametrize("field", AddressHandle._fields)
def test_every_field_of_an_address_handle(field: str) -> None:
    for value in VALUES:
        pair = Pair(kind=QPType.UD)
        wr = work_for(pair.client, SendOpcode.SEND)
        assert wr.ah is not None
        wr = wr._replace(ah=wr.ah._replace(**{field: value}))
        if allowed(lambda pair=pair, wr=wr: _post(pair.client, wr)):  # type: ignore[misc]
            go_on(pair)


def test_a_handle_of_two_networks_is_refused_when_work_is_posted() -> None:
    end = Pair(kind=QPType.UD).client
    handle = end.path_to(end.peer)._replace(dgid=bytes(16))
    wr = work_for(end, SendOpcode.SEND)._replace(ah=handle)
    with pytest.raises(VerbsError, match="IPv4"):
        _post(end, wr)
    assert not end.nic.transmit(0)


VERBS: dict[str, Callable[[End, Any], object]] = {
    "create_cq": lambda end, x: end.nic.create_cq(x),
    "poll": lambda end, x: end.cq.poll(x),
    "resize": lambda end, x: end.cq.resize(x),
    "count": lambda end, x: end.nic.modify_cq(end.cq, x, 0),
    "period": lambda end, x: end.nic.modify_cq(end.cq, 0, x),
    "modify_cq": lambda end, x: end.nic.modify_cq(x, 0, 0),
    "destroy_cq": lambda end, x: end.nic.destroy_cq(x),
    "destroy_srq": lambda end, x: end.nic.destroy_srq(x),
    "destroy_qp": lambda end, x: end.nic.destroy_qp(x),
    "query_qp": lambda end, x: end.nic.query_qp(x),
    "dealloc_pd": lambda end, x: end.nic.dealloc_pd(x),
    "srq pd": lambda end, x: end.nic.create_srq(x, 4),
    "srq max_wr": lambda end, x: end.nic.create_srq(end.pd, x),
    "srq max_sge": lambda end, x: end.nic.create_srq(end.pd, 4, x),
    "srq xrc": lambda end, x: end.nic.create_srq(end.pd, 4, 1, x),
    "srq cq": lambda end, x: end.nic.create_srq(end.pd, 4, 1, XRCReceiver(end.nic.open_xrcd(), x)),
    "srq domain": lambda end, x: end.nic.create_srq(end.pd, 4, 1, XRCReceiver(x, end.cq)),
    "close_xrcd": lambda end, x: end.nic.close_xrcd(x),
    "qp domain": lambda end, x: end.nic.create_qp(
        QPType.XRC_TGT, QPInit(end.pd, end.cq, end.cq, xrc_domain=x)
    ),
    "srq modify": lambda end, x: end.nic.create_srq(end.pd, 4).modify(x),
    "srq limit": lambda end, x: end.nic.create_srq(end.pd, 4).modify(None, x),
    "qp kind": lambda end, x: end.nic.create_qp(x, QPInit(end.pd, end.cq, end.cq)),
    "qp init": lambda end, x: end.nic.create_qp(QPType.RC, x),
    "attributes": lambda end, x: end.nic.modify_qp(end.qp, x, QPAttrMask.STATE),
    "mask": lambda end, x: end.nic.modify_qp(end.qp, ATTRIBUTES, x),
    "modify_qp": lambda end, x: end.nic.modify_qp(x, ATTRIBUTES, QPAttrMask.STATE),
    "attach": lambda end, x: end.nic.attach_mcast(end.qp, x),
    "attach_mcast": lambda end, x: end.nic.attach_mcast(x, b"\xff" * 16),
    "detach": lambda end, x: end.nic.detach_mcast(end.qp, x),
    "detach_mcast": lambda end, x: end.nic.detach_mcast(x, b"\xff" * 16),
    "create_flow": lambda end, x: end.nic.create_flow(x),
    "flow qp": lambda end, x: end.nic.create_flow(FlowRule(x)),
    "destroy_flow": lambda end, x: end.nic.destroy_flow(x),
    "gids": lambda end, x: setattr(end.nic, "gids", x),
    "gid": lambda end, x: setattr(end.nic, "gids", [x]),
    "mac": lambda end, x: Nic(x, [end.gid], end.space),
    "space": lambda end, x: Nic(end.mac, [end.gid], x),
    "profile": lambda end, x: Nic(end.mac, [end.gid], end.space, profile=x),
    "clients": lambda end, x: Nic(end.mac, [end.gid], end.space, clients=x),
    "client": lambda end, x: Nic(end.mac, [end.gid], end.space, clients=[x]),
    "post_send qp": lambda end, x: end.nic.post_send(x, []),
    "post_send list": lambda end, x: end.nic.post_send(end.qp, x),
    "post_send work": lambda end, x: end.nic.post_send(end.qp, [x]),
    "post_recv qp": lambda end, x: end.nic.post_recv(x, []),
    "post_recv list": lambda end, x: end.nic.post_recv(end.qp, x),
    "post_recv work": lambda end, x: end.nic.post_recv(end.qp, [x]),
    "post_srq_recv": lambda end, x: end.nic.post_srq_recv(x, []),
    "post_srq_recv list": lambda end, x: end.nic.post_srq_recv(end.nic.create_srq(end.pd, 4), x),
    "post_srq_recv work": lambda end, x: end.nic.post_srq_recv(end.nic.create_srq(end.pd, 4), [x]),
}
VERBS |= {
    "control_congestion": lambda end, x: end.nic.control_congestion(x, None),
    "scheme": lambda end, x: end.nic.control_congestion(end.qp, x),
    "notify_congestion": lambda end, x: end.nic.notify_congestion(x),
    "notify_congestion interval": lambda end, x: end.nic.notify_congestion(end.qp, x),
    "notify_congestion class": lambda end, x: end.nic.notify_congestion(end.qp, traffic_class=x),
}
VERBS |= {
    f"init {field}": lambda end, x, field=field: end.nic.create_qp(  # type: ignore[misc]
        QPType.RC, QPInit(end.pd, end.cq, end.cq)._replace(**{field: x})
    )
    for field in QPInit._fields
}
VERBS |= {
    f"cap {field}": lambda end, x, field=field: end.nic.create_qp(  # type: ignore[misc]
        QPType.RC, QPInit(end.pd, end.cq, end.cq, QPCap()._replace(**{field: x}))
    )
    for field in QPCap._fields
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", [QPType.RC, QPType.UD])
def test_every_argument_of_every_verb(verb: str, kind: QPType) -> None:
    pair = Pair(kind=kind)
    for value in VALUES:
        if allowed(lambda pair=pair, value=value: VERBS[verb](pair.client, value)):  # type: ignore[misc]
            pair = Pair(kind=kind)


def at(end: End, time: Any) -> Nic:
    """The adapter of an end, with a clock that returns ``time``."""
    end.nic.clock = lambda: time
    return end.nic


NO_TIMES: list[Any] = [None, "now", 1.5, float("nan"), float("inf"), [], object()]
TIMED: dict[str, Callable[[End, Any], object]] = {
    "transmit": lambda end, x: end.nic.transmit(x),
    "handle_timer": lambda end, x: end.nic.handle_timer(x),
    "receive": lambda end, x: end.nic.receive(b"", x),
    "receive_all": lambda end, x: end.nic.receive_all([b""], x),
    "post_send": lambda end, x: at(end, x).post_send(end.qp, [SendWR(SendOpcode.SEND)]),
    "post_recv": lambda end, x: at(end, x).post_recv(end.qp, [RecvWR()]),
    "modify_cq": lambda end, x: at(end, x).modify_cq(end.cq, 1, 0),
    "transmit most": lambda end, x: end.nic.transmit(0, x),
}


@pytest.mark.parametrize("call", TIMED)
@pytest.mark.parametrize("now", NO_TIMES)
def test_what_is_no_time_changes_nothing(call: str, now: Any) -> None:
    pair = Pair()
    pair.server.receive(8)
    pair.client.send(b"8 octets")
    with pytest.raises(VerbsError) as caught:
        TIMED[call](pair.client, now)
    assert caught.value.errno == EINVAL
    pair.drive()
    assert [done.status for done in pair.server.poll()] == [WCStatus.SUCCESS]
    assert [done.status for done in pair.client.poll()] == [WCStatus.SUCCESS]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("at_once", [False, True])
def test_frames_may_be_bytes_of_any_kind(kind: Callable[[bytes], Any], at_once: bool) -> None:
    pair = Pair()
    pair.client.write(b"octets" * 1000, to=pair.server.region)
    frames = [kind(frame) for frame in pair.client.nic.transmit(0)]
    assert len(frames) > 4
    if at_once:
        pair.server.nic.receive_all(frames, 0)
    else:
        for frame in frames:
            pair.server.nic.receive(frame, 0)
    assert pair.server.region.read(6000) == b"octets" * 1000


@pytest.mark.parametrize("frame", [None, "text", 7, [], {}, 1.5, object()])
def test_what_is_no_frame_is_refused_and_those_before_it_count(frame: Any) -> None:
    pair = Pair()
    pair.client.write(b"octets" * 1000, to=pair.server.region)
    frames: list[Any] = pair.client.nic.transmit(0)
    server = pair.server.nic
    with pytest.raises(VerbsError, match="frame: "):
        server.receive(frame, 0)
    for at in (0, 3):
        with pytest.raises(VerbsError, match="frame: "):
            server.receive_all([*frames[:at], frame, *frames[at:]], 0)
    server.receive_all(frames[3:], 0)
    assert pair.server.region.read(6000) == b"octets" * 1000
    for no_frames in (None, {1: 2}, {b""}, 7, iter(frames)):
        with pytest.raises(VerbsError, match="frames: "):
            server.receive_all(no_frames, 0)  # type: ignore[arg-type]


def _pieces(sge: Sge) -> list[Any]:
    return [{sge}, {sge: 1}, iter([sge]), "", b"", {}, frozenset(), 0, None]


@pytest.mark.parametrize("place", range(9))
def test_pieces_of_memory_stand_in_a_tuple_or_a_list(place: int) -> None:
    end = Pair().client
    pieces = _pieces(end.region.sge(8))[place]
    srq = end.nic.create_srq(end.pd, 4)
    posts: tuple[Callable[[], object], ...] = (
        lambda: _post(end, SendWR(SendOpcode.SEND, pieces)),
        lambda: end.nic.post_recv(end.qp, [RecvWR(pieces)]),
        lambda: end.nic.post_srq_recv(srq, [RecvWR(pieces)]),
    )
    for post in posts:
        with pytest.raises(VerbsError, match="sges is"):
            post()
    assert not end.nic.transmit(0)


@pytest.mark.parametrize(
    ("dmac", "ethertype"),
    [(b"x", None), ("xx", None), (bytearray(6), None), (None, 1 << 16), (None, -1), (None, "ARP")],
)
def test_a_flow_is_of_what_a_frame_may_have(dmac: Any, ethertype: Any) -> None:
    host = Host()
    cq = host.nic.create_cq(9)
    qp = host.nic.create_qp(QPType.RAW_PACKET, QPInit(host.pd, cq, cq, CAP))
    rule = FlowRule(qp, dmac, ethertype)
    with pytest.raises(VerbsError, match=r"dmac|ethertype"):
        host.nic.create_flow(rule)
    with pytest.raises(VerbsError, match="no such flow"):
        host.nic.destroy_flow(rule)


def test_plain_numbers_are_as_good_as_names() -> None:
    pair = Pair()
    client, server = pair.client, pair.server
    server.region.write((5).to_bytes(8, "little"))
    wr = work_for(client, SendOpcode.ATOMIC_FETCH_AND_ADD)._replace(compare_add=7)
    _post(client, wr._replace(opcode=6, flags=2))
    pair.drive()
    assert server.region.read(8) == (12).to_bytes(8, "little")
    client.nic.modify_qp(client.qp, QPAttributes(qp_state=6), 1)  # type: ignore[arg-type]
    assert client.qp.state is QPState.ERR
    qp = client.nic.create_qp(2, QPInit(client.pd, client.cq, client.cq))  # type: ignore[arg-type]
    assert qp.type is QPType.RC


def test_a_piece_of_memory_may_be_any_tuple_of_three() -> None:
    pair = Pair()
    pair.server.receive(8)
    sge = tuple(pair.client.filled(b"8 octets").sge(8))
    _post(pair.client, SendWR(SendOpcode.SEND, [sge]))  # type: ignore[arg-type]
    pair.drive()
    assert [done.status for done in pair.server.poll()] == [WCStatus.SUCCESS]


@pytest.mark.parametrize(
    "opcode", [SendOpcode.LOCAL_INV, SendOpcode.BIND_MW, SendOpcode.REG_MR], ids=lambda op: op.name
)
def test_work_that_stays_here_takes_no_psn_whatever_its_length(opcode: SendOpcode) -> None:
    pair = Pair()
    client = pair.client
    wr = work_for(client, opcode)._replace(length=0xFFFF_FFFF)
    region = client.nic.memory.alloc_mr(client.pd, 1)
    _post(client, wr._replace(invalidate_rkey=region.rkey))
    client.write(b"behind it", to=pair.server.region)
    pair.drive()
    first, second = client.poll()
    assert (first.status, first.byte_len) == (WCStatus.SUCCESS, 0)
    assert second.status is WCStatus.SUCCESS
    assert pair.server.region.read(9) == b"behind it"


def test_the_error_of_an_unknown_type_lists_the_types() -> None:
    end = Pair().client
    with pytest.raises(VerbsError, match=r"qp_type 5 is none of RC \(2\), UC") as caught:
        end.nic.create_qp(5, QPInit(end.pd, end.cq, end.cq))  # type: ignore[arg-type]
    assert caught.value.errno == EOPNOTSUPP


def test_a_region_that_is_gone_is_not_registered() -> None:
    pair = Pair()
    client = pair.client
    wr = work_for(client, SendOpcode.REG_MR)
    assert wr.reg is not None
    _post(client, wr)
    client.nic.memory.dereg_mr(wr.reg.region)
    pair.drive()
    assert [done.status for done in client.poll()] == [WCStatus.MW_BIND_ERR]


def test_refusals_take_nothing_away() -> None:
    end = Pair().client
    users = end.pd.users
    for _ in range(3):
        allowed(lambda: end.nic.create_qp(QPType.RC, QPInit(end.pd, end.cq, end.cq, srq=end.cq)))  # type: ignore[arg-type]
        allowed(lambda: end.nic.create_srq(end.pd, 0))
        allowed(lambda: end.nic.memory.alloc_mw(end.pd, 3))
    assert end.pd.users == users
    assert isinstance(end.space, AddressSpace)
