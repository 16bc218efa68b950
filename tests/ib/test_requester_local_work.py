"""Windows, fast registration and invalidation, as work in its turn. IBA 10.6.6, 10.8.3, A19."""

import pytest

from rdmawire.fabric.host import ALL_ACCESS, Buffer
from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import End, Pair
from rdmawire.memory.fast_reg import FastRegistration
from rdmawire.memory.key import Access, next_variant
from rdmawire.memory.mw import Bind, MemoryWindow, bind_window
from rdmawire.memory.page import PAGE_4K
from rdmawire.memory.region import Region
from rdmawire.units import us
from rdmawire.verbs.enums import QPState, QPType, WCFlags, WCOpcode, WCStatus
from rdmawire.verbs.profile import IBTA, RXE, Profile
from rdmawire.verbs.wr import FENCE, SIGNALED, BindMW, RegMR, SendOpcode, SendWR, Sge
from tests.ib.stage import PATIENT, Stage, events, go, only, outcomes, statuses

RIGHTS = Access.REMOTE_WRITE | Access.REMOTE_READ


def post(end: End, wr: SendWR) -> int:
    return end.post(wr, end.region).wr_id


def bind(end: End, window: MemoryWindow, length: int = 8, access: int = RIGHTS) -> int:
    """Bind a window to the beginning of an end's region; the key that is then good."""
    region = end.region.region
    key = next_variant(window.rkey)
    wanted = Bind(region.iova, length, access, rkey=key)
    post(end, SendWR(SendOpcode.BIND_MW, bind=BindMW(window, region, wanted)))
    end.simulator.run()
    return key


def through(end: End, key: int) -> Buffer:
    """An end's region by another key, as the peer sees it."""

    class Named(Buffer):
        rkey = key

    return Named(end.region.memory, end.region.region)


def write_by(stage: Stage, key: int, data: bytes = b"windowed") -> None:
    stage.client.write(data, to=through(stage.server, key))
    stage.drive()


def of_type_2(stage: Stage) -> tuple[MemoryWindow, int]:
    window = stage.server.nic.memory.alloc_mw(stage.server.pd, 2)
    return window, bind(stage.server, window)


def test_a_bound_window_of_type_2_is_written_through() -> None:
    stage = Stage()
    _, key = of_type_2(stage)
    assert only(stage.server)[:3] == (1, WCStatus.SUCCESS, WCOpcode.BIND_MW)
    write_by(stage, key)
    assert stage.server.region.read(8) == b"windowed"
    assert statuses(stage.client) == [WCStatus.SUCCESS]


def test_a_window_of_type_1_is_bound_by_the_verb() -> None:
    stage = Stage()
    region = stage.server.region.region
    window = stage.server.nic.memory.alloc_mw(stage.server.pd, 1)
    key = bind_window(stage.server.nic.memory.keys, window, region, Bind(region.iova, 8, RIGHTS))
    write_by(stage, key)
    assert stage.server.region.read(8) == b"windowed"


@pytest.mark.parametrize("length", [9, 65536])
def test_nothing_outside_a_window_is_reached_by_its_key(length: int) -> None:
    stage = Stage(Pair(attributes=PATIENT))
    _, key = of_type_2(stage)
    write_by(stage, key, bytes(length - 1) + b"!")
    assert statuses(stage.client) == [WCStatus.REM_ACCESS_ERR]
    assert stage.server.region.read() == bytes(65536)


def test_a_window_allows_no_more_than_was_bound() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    window = stage.server.nic.memory.alloc_mw(stage.server.pd, 2)
    key = bind(stage.server, window, access=Access.REMOTE_READ)
    write_by(stage, key)
    assert statuses(stage.client) == [WCStatus.REM_ACCESS_ERR]


def test_a_window_of_type_2_is_for_the_queue_pair_it_was_bound_on() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    window, key = of_type_2(stage)
    window.qpn += 1
    write_by(stage, key)
    assert statuses(stage.client) == [WCStatus.REM_ACCESS_ERR]


@pytest.mark.parametrize("access", [ALL_ACCESS & ~Access.MW_BIND, Access.MW_BIND])
def test_a_bind_that_the_region_does_not_allow_ends_the_queue_pair(access: int) -> None:
    stage = Stage()
    stage.server.region = stage.server.buffer(4096, access)
    window = stage.server.nic.memory.alloc_mw(stage.server.pd, 2)
    bind(stage.server, window)
    assert statuses(stage.server) == [WCStatus.MW_BIND_ERR]
    assert stage.server.qp.state is QPState.ERR
    assert not window.valid


@pytest.mark.parametrize("kind", [1, 2])
def test_a_bind_is_for_windows_of_the_queue_pairs_own_domain(kind: int) -> None:
    stage = Stage()
    server = stage.server
    server.pd, own = server.nic.alloc_pd(), server.pd
    server.region = server.buffer(4096)
    window = server.nic.memory.alloc_mw(server.pd, kind)
    bind(server, window)
    assert own is server.qp.pd is not window.pd
    assert statuses(server) == [WCStatus.MW_BIND_ERR]
    assert not window.valid


def test_a_bind_that_says_nothing_is_an_error() -> None:
    stage = Stage()
    post(stage.client, SendWR(SendOpcode.BIND_MW))
    stage.drive()
    assert statuses(stage.client) == [WCStatus.MW_BIND_ERR]


def test_local_invalidation_takes_a_window_back() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    window, key = of_type_2(stage)
    post(stage.server, SendWR(SendOpcode.LOCAL_INV, invalidate_rkey=key))
    stage.drive()
    assert [done.opcode for done in stage.server.poll()] == [WCOpcode.BIND_MW, WCOpcode.LOCAL_INV]
    assert not window.valid
    write_by(stage, key)
    assert statuses(stage.client) == [WCStatus.REM_ACCESS_ERR]


@pytest.mark.parametrize("length", [0, 8, 3000])
def test_a_send_may_take_a_window_back(length: int) -> None:
    stage = Stage()
    window, key = of_type_2(stage)
    stage.server.poll()
    stage.server.receive(length)
    stage.client.send(bytes(length), invalidate=key)
    stage.drive()
    done = only(stage.server)
    assert (done.status, done.invalidated_rkey) == (WCStatus.SUCCESS, key)
    assert done.wc_flags & WCFlags.WITH_INV
    assert not window.valid
    assert statuses(stage.client) == [WCStatus.SUCCESS]


def test_a_send_that_takes_back_what_is_none_ends_the_receiver_alone() -> None:
    """Class J of IBA 9.9.3: the message is acknowledged."""
    stage = Stage(Pair(attributes=PATIENT))
    stage.server.receive(8)
    stage.client.send(b"message", invalidate=stage.server.region.rkey)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS]
    assert statuses(stage.server) == [WCStatus.REM_INV_REQ_ERR]
    assert stage.server.qp.state is QPState.ERR
    assert events(stage.server) == []


def fast_region(end: End) -> tuple[Region, FastRegistration]:
    region = end.nic.memory.alloc_mr(end.pd, 4)
    base = end.region.memory.base
    pages = (base + 2 * PAGE_4K, base)  # the second half of the region comes first
    key = next_variant(region.rkey)
    return region, FastRegistration(key, 0x5000_0000, 2 * PAGE_4K, ALL_ACCESS, pages)


def test_fast_registration_gives_a_region_its_pages() -> None:
    stage = Stage()
    region, registration = fast_region(stage.server)
    post(stage.server, SendWR(SendOpcode.REG_MR, reg=RegMR(region, registration)))
    stage.drive()
    assert only(stage.server)[1:3] == (WCStatus.SUCCESS, WCOpcode.REG_MR)
    source = stage.client.filled(bytes(PAGE_4K - 2) + b"abcd")
    wr = SendWR(
        SendOpcode.RDMA_WRITE,
        (source.sge(PAGE_4K + 2),),
        remote_address=0x5000_0000,
        rkey=registration.key,
    )
    stage.client.post(wr, source)
    stage.drive()
    assert stage.server.region.read(2, 3 * PAGE_4K - 2) == b"ab"
    assert stage.server.region.read(2) == b"cd"


def test_a_region_of_another_domain_is_not_registered() -> None:
    stage = Stage()
    stage.server.pd = stage.server.nic.alloc_pd()
    region, registration = fast_region(stage.server)
    post(stage.server, SendWR(SendOpcode.REG_MR, reg=RegMR(region, registration)))
    stage.drive()
    assert statuses(stage.server) == [WCStatus.MW_BIND_ERR]
    assert stage.server.qp.state is QPState.ERR
    assert not region.valid


def test_registered_and_taken_back_and_registered_again() -> None:
    stage = Stage()
    region, registration = fast_region(stage.server)
    register = SendWR(SendOpcode.REG_MR, reg=RegMR(region, registration))
    invalidate = SendWR(SendOpcode.LOCAL_INV, invalidate_rkey=registration.key)
    for wr in (register, invalidate, register):
        post(stage.server, wr)
    stage.drive()
    assert statuses(stage.server) == [WCStatus.SUCCESS] * 3


def take_back_behind_a_write(profile: Profile, flags: int, lost: int) -> Stage:
    """Registered, written from in two packets, taken back; one packet of the WRITE is lost."""
    stage = Stage(Pair(Link(us(1), drop={lost}), profile=profile))
    client, memory = stage.client, stage.server.region
    region, registration = fast_region(client)
    source = (Sge(registration.iova, 1500, registration.key),)
    write = SendWR(SendOpcode.RDMA_WRITE, source, remote_address=memory.address, rkey=memory.rkey)
    post(client, SendWR(SendOpcode.REG_MR, reg=RegMR(region, registration)))
    post(client, write)
    post(client, SendWR(SendOpcode.LOCAL_INV, invalidate_rkey=registration.key, flags=flags))
    stage.drive()
    return stage


@pytest.mark.parametrize("lost", [1, 2, 3])
@pytest.mark.parametrize(("profile", "flags"), [(IBTA, FENCE), (RXE, FENCE), (RXE, 0)])
def test_behind_a_fence_a_key_is_good_until_all_work_before_is_done(
    profile: Profile, flags: int, lost: int
) -> None:
    """The fence of a LOCAL_INV is for WRITEs, too, which are sent again from the region."""
    stage = take_back_behind_a_write(profile, flags | SIGNALED, lost)
    assert outcomes(stage.client) == [(n, WCStatus.SUCCESS) for n in (1, 2, 3)]


def test_without_a_fence_a_key_may_go_before_what_is_sent_again() -> None:
    stage = take_back_behind_a_write(IBTA, SIGNALED, 1)
    assert outcomes(stage.client) == [
        (1, WCStatus.SUCCESS),
        (2, WCStatus.LOC_PROT_ERR),
        (3, WCStatus.WR_FLUSH_ERR),
    ]


def test_a_fence_of_unreliable_work_waits_for_nothing() -> None:
    stage = Stage(Pair(kind=QPType.UC))
    region, registration = fast_region(stage.client)
    stage.client.write(b"gone at once", to=stage.server.region)
    post(stage.client, SendWR(SendOpcode.REG_MR, reg=RegMR(region, registration)))
    taken = SendWR(SendOpcode.LOCAL_INV, invalidate_rkey=registration.key, flags=FENCE | SIGNALED)
    post(stage.client, taken)
    stage.client.nic.transmit(0)
    assert statuses(stage.client) == [WCStatus.SUCCESS] * 3


REFUSED = pytest.mark.parametrize(
    ("profile", "status"),
    [(IBTA, WCStatus.MW_BIND_ERR), (RXE, WCStatus.LOC_QP_OP_ERR)],
    ids=lambda row: row.name,
)
"""How LOCAL_INV and REG_MR end that are refused: a memory management operation error."""


@REFUSED
@pytest.mark.parametrize("opcode", [SendOpcode.REG_MR, SendOpcode.LOCAL_INV])
def test_local_work_that_makes_no_sense_ends_the_queue_pair(
    opcode: SendOpcode, profile: Profile, status: WCStatus
) -> None:
    stage = Stage(Pair(profile=profile))
    first = post(stage.client, SendWR(opcode, invalidate_rkey=0xBAD))
    second = post(stage.client, SendWR(SendOpcode.LOCAL_INV, flags=0))
    stage.drive()
    assert outcomes(stage.client) == [
        (first, status),
        (second, WCStatus.WR_FLUSH_ERR),
    ]
    assert stage.client.qp.state is QPState.ERR


@pytest.mark.parametrize("opcode", [SendOpcode.BIND_MW, SendOpcode.REG_MR, SendOpcode.LOCAL_INV])
def test_local_work_of_an_unreliable_queue_pair_fails_as_sends_do(opcode: SendOpcode) -> None:
    """The queue pair stops sending, and goes on when its owner says so."""
    stage = Stage(Pair(kind=QPType.UC))
    client, server = stage.client, stage.server
    post(client, SendWR(opcode, invalidate_rkey=0xBAD))
    post(client, SendWR(SendOpcode.LOCAL_INV))
    stage.drive()
    assert statuses(client) == [WCStatus.MW_BIND_ERR, WCStatus.WR_FLUSH_ERR]
    assert client.qp.state is QPState.SQE
    go(client, QPState.RTS)
    client.write(b"again", to=server.region)
    stage.drive()
    assert server.region.read(5) == b"again"


@REFUSED
def test_a_region_that_is_valid_is_not_registered_over(profile: Profile, status: WCStatus) -> None:
    stage = Stage(Pair(profile=profile))
    region, registration = fast_region(stage.server)
    for _ in range(2):
        post(stage.server, SendWR(SendOpcode.REG_MR, reg=RegMR(region, registration)))
    stage.drive()
    assert statuses(stage.server) == [WCStatus.SUCCESS, status]


@pytest.mark.parametrize("profile", [IBTA, RXE], ids=lambda row: row.name)
@pytest.mark.parametrize("named", [True, False])
def test_a_window_of_type_1_is_unbound_by_work(profile: Profile, named: bool) -> None:
    stage = Stage(Pair(profile=profile, attributes=PATIENT))
    server = stage.server
    window, region = server.nic.memory.alloc_mw(server.pd, 1), server.region.region
    post(
        server,
        SendWR(SendOpcode.BIND_MW, bind=BindMW(window, region, Bind(region.iova, 8, RIGHTS))),
    )
    stage.drive()
    key = window.rkey
    unbind = BindMW(window, region if named else None, Bind(0, 0, 0))
    post(server, SendWR(SendOpcode.BIND_MW, bind=unbind))
    stage.drive()
    assert statuses(server) == [WCStatus.SUCCESS] * 2
    write_by(stage, key)
    assert statuses(stage.client) == [WCStatus.REM_ACCESS_ERR]


def test_local_work_completes_behind_what_is_on_its_way() -> None:
    stage = Stage()
    stage.client.write(b"first", to=stage.server.region)
    region, registration = fast_region(stage.client)
    post(stage.client, SendWR(SendOpcode.REG_MR, reg=RegMR(region, registration)))
    frames = stage.client.nic.transmit(0)
    assert region.valid
    assert stage.client.poll() == []
    for frame in frames:
        stage.server.nic.receive(frame, 0)
    stage.drive()
    assert outcomes(stage.client) == [(1, WCStatus.SUCCESS), (2, WCStatus.SUCCESS)]


def test_a_region_registered_in_turn_may_be_sent_from_at_once() -> None:
    stage = Stage()
    region, registration = fast_region(stage.client)
    stage.client.region.write(b"from here", 2 * PAGE_4K)
    got = stage.server.receive(9)
    post(stage.client, SendWR(SendOpcode.REG_MR, reg=RegMR(region, registration)))
    post(stage.client, SendWR(SendOpcode.SEND, (Sge(0x5000_0000, 9, registration.key),)))
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS] * 2
    assert got.buffer.read() == b"from here"
