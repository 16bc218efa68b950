"""What windows of type 2 are good for, and for whom: types 2A and 2B. IBA 10.6.6, 10.6.7.2."""

from dataclasses import replace
from errno import EBUSY

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.pair import CAP, Pair, connect
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.memory.key import Access, KeyFault, ProtectionDomain, next_variant
from rdmawire.memory.mw import Bind, WindowType
from rdmawire.verbs.async_event import AccessViolation
from rdmawire.verbs.enums import QPType, WCStatus
from rdmawire.verbs.profile import IBTA, Profile
from rdmawire.verbs.wr import BindMW, SendOpcode, SendWR
from tests.ib.stage import PATIENT, Stage, events, statuses
from tests.ib.test_requester_local_work import of_type_2, post, write_by

ATOMICS = (
    SendOpcode.ATOMIC_FETCH_AND_ADD,
    SendOpcode.ATOMIC_CMP_AND_SWP,
    SendOpcode.ATOMIC_WRITE,
)


@pytest.mark.parametrize("opcode", ATOMICS)
@pytest.mark.parametrize("start", range(9))
def test_atomics_are_aligned_in_the_region_whatever_a_window_counts_from(
    opcode: SendOpcode, start: int
) -> None:
    stage = Stage(Pair(attributes=PATIENT))
    client, server = stage.client, stage.server
    region = server.region.region
    window = server.nic.memory.alloc_mw(server.pd, 2)
    rights = Access.REMOTE_ATOMIC | Access.REMOTE_WRITE | Access.ZERO_BASED
    key = next_variant(window.rkey)
    wanted = Bind(region.iova + start, 8, rights, rkey=key)
    post(server, SendWR(SendOpcode.BIND_MW, bind=BindMW(window, region, wanted)))
    stage.drive()
    post(client, SendWR(opcode, (client.buffer(8).sge(),), rkey=key))
    stage.drive()
    aligned = start % 8 == 0
    assert statuses(client) == [WCStatus.SUCCESS if aligned else WCStatus.REM_INV_REQ_ERR]


WITH_2A = replace(IBTA, window_type_2=WindowType.TYPE_2A)


@pytest.mark.parametrize("device", [IBTA, WITH_2A], ids=lambda one: one.window_type_2.name)
def test_a_device_has_one_kind_of_type_2(device: Profile) -> None:
    stage = Stage(Pair(profile=device))
    window, key = of_type_2(stage)
    assert window.type is device.window_type_2
    write_by(stage, key)
    assert stage.server.region.read(8) == b"windowed"
    stage.server.receive(8)
    stage.client.send(b"taken", invalidate=key)
    write_by(stage, key)
    assert statuses(stage.client) == [*[WCStatus.SUCCESS] * 2, WCStatus.REM_ACCESS_ERR]


def second_queue_pair(stage: Stage, pd: ProtectionDomain) -> QueuePair:
    """A client's, connected to one of the server's in that domain."""
    client, server = stage.client, stage.server
    asking = client.nic.create_qp(QPType.RC, QPInit(client.pd, client.cq, client.cq, CAP))
    answering = server.nic.create_qp(QPType.RC, QPInit(pd, server.cq, server.cq, CAP))
    connect(client, asking, server, answering)
    return asking


@pytest.mark.parametrize("device", [IBTA, WITH_2A], ids=lambda one: one.window_type_2.name)
@pytest.mark.parametrize("same_domain", [True, False])
def test_another_queue_pair_does_not_reach_through_it(device: Profile, same_domain: bool) -> None:
    stage = Stage(Pair(profile=device))
    nic = stage.server.nic
    _, key = of_type_2(stage)
    stage.client.qp = second_queue_pair(stage, stage.server.pd if same_domain else nic.alloc_pd())
    write_by(stage, key)
    assert statuses(stage.client) == [WCStatus.REM_ACCESS_ERR]
    [violation] = [one for one in events(stage.server) if isinstance(one, AccessViolation)]
    first = device.window_type_2 is WindowType.TYPE_2A or same_domain
    assert violation.denied is not None
    assert violation.denied.reason is (KeyFault.WRONG_QP if first else KeyFault.WRONG_PD)


def test_a_queue_pair_with_windows_of_type_2a_stays() -> None:
    stage = Stage(Pair(profile=WITH_2A))
    server = stage.server
    window, _ = of_type_2(stage)
    with pytest.raises(VerbsError, match="1 windows of type 2A") as caught:
        server.nic.destroy_qp(server.qp)
    assert caught.value.errno == EBUSY
    server.nic.memory.dealloc_mw(window)
    server.nic.destroy_qp(server.qp)


def test_a_window_of_type_2b_is_for_no_other_queue_pair_of_the_same_number() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    client, server = stage.client, stage.server
    window, key = of_type_2(stage)
    number = server.qp.qp_num
    server.nic.destroy_qp(server.qp)
    assert not window.valid
    init = QPInit(server.pd, server.cq, server.cq, CAP)
    server.qp = server.nic.create_qp(QPType.RC, init, number)
    client.qp = client.nic.create_qp(QPType.RC, QPInit(client.pd, client.cq, client.cq, CAP))
    connect(client, client.qp, server, server.qp)
    write_by(stage, key)
    assert statuses(client) == [WCStatus.REM_ACCESS_ERR]
    server.nic.memory.dealloc_mw(window)
