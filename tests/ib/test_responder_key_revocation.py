"""Keys that go away between the packets of a message: Remote Access Error. IBA 9.9.3, 10.6.5."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from rdmawire.fabric.host import ALL_ACCESS
from rdmawire.fabric.pair import End, Pair
from rdmawire.ib.rx_parser import Drop
from rdmawire.memory.fast_reg import FastRegistration, invalidate, register_pages
from rdmawire.memory.gpu.device import H200
from rdmawire.memory.gpu.driver import GpuDriver
from rdmawire.memory.gpu.peermem import Peermem
from rdmawire.memory.key import Access, KeyFault, next_variant
from rdmawire.memory.mr_table import Rereg
from rdmawire.memory.mw import Bind, MemoryWindow, bind_window
from rdmawire.memory.page import PAGE_64K
from rdmawire.verbs.async_event import AccessViolation
from rdmawire.verbs.enums import QPState, QPType, WCStatus
from rdmawire.verbs.wr import RecvWR, SendOpcode, SendWR, Sge
from rdmawire.wire.ib import Nak
from tests.ib.stage import PATIENT, Stage, events, nak_of, outcomes, statuses

SIZE = 4096
PACKETS = 4
RIGHTS = Access.REMOTE_WRITE | Access.REMOTE_READ


class Key(NamedTuple):
    """A key for ``SIZE`` bytes at ``address``; ``take_away`` ends its use, for ``reason``."""

    address: int
    rkey: int
    take_away: Callable[[], object]
    reason: KeyFault


def deregistered(server: End) -> Key:
    region = server.buffer(SIZE).region
    remove = server.nic.memory.dereg_mr
    return Key(region.iova, region.rkey, lambda: remove(region), KeyFault.INVALID_KEY)


def without_rights(server: End) -> Key:
    region = server.buffer(SIZE).region
    change = server.nic.memory.rereg_mr
    return Key(
        region.iova,
        region.rkey,
        lambda: change(region, Rereg.CHANGE_ACCESS, access=Access.LOCAL_WRITE),
        KeyFault.NO_ACCESS,
    )


def changed_to_the_same(server: End) -> Key:
    region = server.buffer(SIZE).region
    change = server.nic.memory.rereg_mr
    return Key(
        region.iova,
        region.rkey,
        lambda: change(region, Rereg.CHANGE_ACCESS, access=ALL_ACCESS),
        KeyFault.INVALIDATED,
    )


def invalidated(server: End) -> Key:
    keys, page = server.nic.memory.keys, server.region.address
    region = server.nic.memory.alloc_mr(server.pd, 1)
    key = next_variant(region.rkey)
    wanted = FastRegistration(key, page, SIZE, RIGHTS | Access.LOCAL_WRITE, [page])
    register_pages(keys, server.space, region, wanted)
    take = lambda: invalidate(keys, key, server.pd, server.qp.qp_num)  # noqa: E731
    return Key(page, key, take, KeyFault.NOT_BOUND)


def _bound(server: End) -> MemoryWindow:
    window = server.nic.memory.alloc_mw(server.pd, 2)
    _bind(server, window)
    return window


def _bind(server: End, window: MemoryWindow) -> None:
    key, region = next_variant(window.rkey), server.region.region
    wanted = Bind(region.iova, SIZE, RIGHTS, server.qp.qp_num, server.pd, key)
    bind_window(server.nic.memory.keys, window, region, wanted)


def unbound(server: End) -> Key:
    window, keys = _bound(server), server.nic.memory.keys
    take = lambda: invalidate(keys, window.rkey, server.pd, server.qp.qp_num)  # noqa: E731
    return Key(server.region.address, window.rkey, take, KeyFault.NOT_BOUND)


def bound_anew(server: End) -> Key:
    window, keys = _bound(server), server.nic.memory.keys

    def take() -> None:
        invalidate(keys, window.rkey, server.pd, server.qp.qp_num)
        _bind(server, window)

    return Key(server.region.address, window.rkey, take, KeyFault.INVALID_KEY)


def revoked(server: End) -> Key:
    driver = GpuDriver(server.space)
    gpu = driver.add(H200)
    server.nic.memory.clients.append(Peermem(driver, persistent=False))
    address = gpu.allocate(1 << 21).address
    region = server.nic.memory.reg_mr(server.pd, address, PAGE_64K, ALL_ACCESS)
    return Key(address, region.rkey, lambda: gpu.free(address), KeyFault.INVALIDATED)


KEYS = pytest.mark.parametrize(
    "make",
    [
        deregistered,
        without_rights,
        changed_to_the_same,
        invalidated,
        unbound,
        bound_anew,
        revoked,
    ],
)


def asked(stage: Stage, opcode: SendOpcode, key: Key) -> None:
    """The client posts work on all of the key's memory."""
    wr = SendWR(opcode, (stage.client.region.sge(SIZE),), 1, remote_address=key.address)
    stage.client.nic.post_send(stage.client.qp, [wr._replace(rkey=key.rkey)])


def refused(stage: Stage, key: Key, access: Access) -> None:
    """The server refused the key in the middle of the message, and says which key and why."""
    violation, *others = events(stage.server)
    assert isinstance(violation, AccessViolation)
    assert violation.denied == (key.rkey, key.address, SIZE, access, key.reason)
    assert others == []
    assert stage.server.qp.state is QPState.ERR
    assert statuses(stage.client) == [WCStatus.REM_ACCESS_ERR]


@KEYS
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("before", [1, 2, 3])
def test_a_key_that_goes_within_a_write(
    make: Callable[[End], Key], together: bool, before: int
) -> None:
    stage = Stage(Pair(attributes=PATIENT))
    key = make(stage.server)
    asked(stage, SendOpcode.RDMA_WRITE, key)
    frames = stage.client.nic.transmit(0)
    assert len(frames) == PACKETS
    stage.server.nic.receive_all(frames[:before], 0)
    key.take_away()
    if together:
        stage.server.nic.receive_all(frames[before:], 0)
    else:
        for frame in frames[before:]:
            stage.server.nic.receive(frame, 0)
    stage.drive()
    assert nak_of(stage) == (Nak.REMOTE_ACCESS_ERROR, 100 + before)
    refused(stage, key, Access.REMOTE_WRITE)


@KEYS
def test_a_key_that_goes_within_a_write_without_acknowledgement(make: Callable[[End], Key]) -> None:
    stage = Stage(Pair(kind=QPType.UC))
    key = make(stage.server)
    asked(stage, SendOpcode.RDMA_WRITE, key)
    first, *rest = stage.client.nic.transmit(0)
    stage.server.nic.receive(first, 0)
    key.take_away()
    stage.server.nic.receive_all(rest, 0)
    assert stage.server.nic.drops[Drop.ACCESS] == 1
    assert stage.server.qp.state is QPState.RTS


@KEYS
@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_key_that_goes_while_a_read_is_answered(make: Callable[[End], Key], before: int) -> None:
    stage = Stage(Pair(attributes=PATIENT))
    key = make(stage.server)
    asked(stage, SendOpcode.RDMA_READ, key)
    (request,) = stage.client.nic.transmit(0)
    stage.server.nic.receive(request, 0)
    answers = stage.server.nic.transmit(0, before) if before else []
    stage.client.nic.receive_all(answers, 0)
    key.take_away()
    stage.drive()
    assert nak_of(stage) == (Nak.REMOTE_ACCESS_ERROR, 100 + before)
    refused(stage, key, Access.REMOTE_READ)


ONE_PACKET = {
    SendOpcode.ATOMIC_FETCH_AND_ADD: Access.REMOTE_ATOMIC,
    SendOpcode.ATOMIC_CMP_AND_SWP: Access.REMOTE_ATOMIC,
    SendOpcode.ATOMIC_WRITE: Access.REMOTE_WRITE,
    SendOpcode.FLUSH: Access.FLUSH_GLOBAL,
}


@pytest.mark.parametrize("opcode", ONE_PACKET)
@pytest.mark.parametrize("make", [deregistered, without_rights, revoked])
def test_a_key_that_goes_before_a_request_of_one_packet(
    make: Callable[[End], Key], opcode: SendOpcode
) -> None:
    """Its key is checked and used in one step, so nothing comes between the two."""
    stage = Stage(Pair(attributes=PATIENT))
    key = make(stage.server)
    sges = () if opcode is SendOpcode.FLUSH else (stage.client.region.sge(8),)
    wr = SendWR(opcode, sges, remote_address=key.address, rkey=key.rkey, length=8, placement=1)
    stage.client.nic.post_send(stage.client.qp, [wr])
    (request,) = stage.client.nic.transmit(0)
    key.take_away()
    stage.server.nic.receive(request, 0)
    stage.drive()
    assert nak_of(stage) == (Nak.REMOTE_ACCESS_ERROR, 100)
    (violation,) = events(stage.server)
    assert isinstance(violation, AccessViolation)
    assert violation.denied == (key.rkey, key.address, 8, ONE_PACKET[opcode], key.reason)


@pytest.mark.parametrize("make", [deregistered, invalidated, revoked])
@pytest.mark.parametrize("together", [True, False])
def test_a_local_key_that_goes_within_a_receive_is_the_receivers_own_error(
    make: Callable[[End], Key], together: bool
) -> None:
    """The peer named no key: it is told Remote Operational Error. IBA 9.9.3."""
    stage = Stage(Pair(attributes=PATIENT))
    key = make(stage.server)
    recv = RecvWR((Sge(key.address, SIZE, key.rkey),), 7)
    stage.server.nic.post_recv(stage.server.qp, (recv,))
    stage.client.send(bytes(SIZE))
    first, *rest = stage.client.nic.transmit(0)
    stage.server.nic.receive(first, 0)
    key.take_away()
    if together:
        stage.server.nic.receive_all(rest, 0)
    else:
        for frame in rest:
            stage.server.nic.receive(frame, 0)
    stage.drive()
    assert nak_of(stage) == (Nak.REMOTE_OPERATIONAL_ERROR, 101)
    assert outcomes(stage.server) == [(7, WCStatus.LOC_PROT_ERR)]
