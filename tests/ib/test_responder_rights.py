"""What a peer may do: the rights of keys and of the queue pair itself. IBA 9.7.4.1, 10.6.3."""

from collections.abc import Callable

import pytest

from rdmawire.fabric.host import ALL_ACCESS, Buffer
from rdmawire.fabric.pair import Pair, Posted
from rdmawire.memory.key import Access
from rdmawire.verbs.async_event import AccessViolation
from rdmawire.verbs.enums import WCStatus
from rdmawire.wire.ib import Nak, Placement
from tests.ib.stage import PATIENT, Stage, events, nak_of, statuses

LOCAL = Access.LOCAL_WRITE


WORK: dict[str, tuple[int, Callable[[Stage, Buffer], Posted]]] = {
    "write": (Access.REMOTE_WRITE, lambda s, b: s.client.write(b"12345678", to=b)),
    "read": (Access.REMOTE_READ, lambda s, b: s.client.read(8, of=b)),
    "fetch_add": (Access.REMOTE_ATOMIC, lambda s, b: s.client.fetch_add(1, of=b)),
    "compare_swap": (Access.REMOTE_ATOMIC, lambda s, b: s.client.compare_swap(0, 1, of=b)),
    "atomic_write": (Access.REMOTE_WRITE, lambda s, b: s.client.atomic_write(b"12345678", to=b)),
    "flush": (Access.FLUSH_GLOBAL, lambda s, b: s.client.flush(8, of=b)),
    "flush to persistence": (
        Access.FLUSH_PERSISTENT,
        lambda s, b: s.client.flush(8, of=b, placement=Placement.PERSISTENCE),
    ),
}


@pytest.mark.parametrize("name", WORK)
def test_a_region_allows_what_its_rights_say(name: str) -> None:
    right, post = WORK[name]
    for access in (LOCAL | right, ALL_ACCESS & ~right):
        stage = Stage(Pair(attributes=PATIENT))
        post(stage, stage.server.buffer(4096, access))
        stage.drive()
        if access & right:
            assert statuses(stage.client) == [WCStatus.SUCCESS]
        else:
            assert statuses(stage.client) == [WCStatus.REM_ACCESS_ERR]
            assert nak_of(stage) == (Nak.REMOTE_ACCESS_ERROR, 100)


@pytest.mark.parametrize("name", WORK)
def test_a_queue_pair_allows_what_its_own_rights_say(name: str) -> None:
    right, post = WORK[name]
    for access in (right, ALL_ACCESS & ~right):
        stage = Stage(Pair(attributes=PATIENT._replace(qp_access_flags=access)))
        post(stage, stage.server.region)
        stage.drive()
        if access & right:
            assert statuses(stage.client) == [WCStatus.SUCCESS]
        else:
            assert statuses(stage.client) == [WCStatus.REM_INV_REQ_ERR]
            assert nak_of(stage) == (Nak.INVALID_REQUEST, 100)


def test_a_key_of_another_domain_is_refused() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    memory = stage.server.space.allocate(4096)
    other = stage.server.nic.alloc_pd()
    region = stage.server.nic.memory.reg_mr(other, memory.base, 4096, ALL_ACCESS)
    stage.client.write(b"hello", to=Buffer(memory, region))
    stage.drive()
    assert nak_of(stage) == (Nak.REMOTE_ACCESS_ERROR, 100)
    assert statuses(stage.client) == [WCStatus.REM_ACCESS_ERR]
    assert events(stage.server) == [AccessViolation(stage.server.qp.qp_num)]
