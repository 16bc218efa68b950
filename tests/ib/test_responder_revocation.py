"""Rights that are taken back in the middle of a message; and floods that must cost nothing."""

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.host import Host
from rdmawire.fabric.pair import ATTRIBUTES, CAP, Pair
from rdmawire.ib.qp import QPInit
from rdmawire.memory.fast_reg import FastRegistration, invalidate, register_pages
from rdmawire.memory.key import Access
from rdmawire.memory.mr_table import Rereg
from rdmawire.memory.mw import Bind, bind_window
from rdmawire.verbs.enums import QPType, WCStatus
from rdmawire.verbs.wr import SendOpcode, SendWR
from tests.ib.stage import statuses

SIZE = 4096
RIGHTS = Access.REMOTE_WRITE | Access.REMOTE_READ


class Meeting:
    """A client that is in the middle of a WRITE of four packets by some key of the server's."""

    def __init__(self) -> None:
        self.pair = Pair()
        self.client, self.server = self.pair.client, self.pair.server
        self.memory = self.server.nic.memory

    def begin(self, rkey: int) -> None:
        """Two packets are there, the others are not."""
        client, server = self.client, self.server
        source = client.filled(b"w" * SIZE)
        address = server.region.address
        wr = SendWR(SendOpcode.RDMA_WRITE, (source.sge(SIZE),), remote_address=address, rkey=rkey)
        client.nic.post_send(client.qp, [wr])
        for frame in client.nic.transmit(0, 2):
            server.nic.receive(frame, 0)

    def end(self) -> None:
        """The rest comes, and finds the door shut."""
        self.server.region.write(bytes(SIZE))
        self.pair.drive()
        assert self.server.region.read(SIZE) == bytes(SIZE)
        assert statuses(self.client) == [WCStatus.REM_ACCESS_ERR]


def test_a_region_that_goes_ends_what_is_under_way() -> None:
    meeting = Meeting()
    region = meeting.memory.reg_mr(
        meeting.server.pd, meeting.server.region.address, SIZE, RIGHTS | Access.LOCAL_WRITE
    )
    meeting.begin(region.rkey)
    meeting.memory.dereg_mr(region)
    meeting.end()


def test_rights_that_go_end_what_is_under_way() -> None:
    meeting = Meeting()
    meeting.begin(meeting.server.region.rkey)
    meeting.memory.rereg_mr(meeting.server.region.region, Rereg.CHANGE_ACCESS, access=0)
    meeting.end()


def test_a_window_bound_anew_is_another() -> None:
    meeting = Meeting()
    server, keys = meeting.server, meeting.memory.keys
    window = meeting.memory.alloc_mw(server.pd, 2)

    def bind(qpn: int) -> int:
        place = Bind(server.region.address, SIZE, RIGHTS, qpn, server.pd, window.key + 1)
        return bind_window(keys, window, server.region.region, place)

    meeting.begin(bind(server.qp.qp_num))
    assert invalidate(keys, window.key, server.pd, server.qp.qp_num) is None
    bind(server.qp.qp_num + 1)
    meeting.end()


def test_a_region_registered_anew_is_another() -> None:
    meeting = Meeting()
    server, keys = meeting.server, meeting.memory.keys
    region = meeting.memory.alloc_mr(server.pd, 1)
    page = server.region.address

    def register() -> int:
        rights = RIGHTS | Access.LOCAL_WRITE
        wanted = FastRegistration(region.key + 1, page, SIZE, rights, [page])
        register_pages(keys, server.space, region, wanted)
        return region.rkey

    meeting.begin(register())
    assert invalidate(keys, region.key, server.pd, server.qp.qp_num) is None
    register()
    meeting.end()


def test_a_raw_frame_of_no_bytes_goes_to_no_group() -> None:
    host = Host()
    nic, cq = host.nic, host.nic.create_cq(9)
    raw = nic.create_qp(QPType.RAW_PACKET, QPInit(host.pd, cq, cq, CAP))
    listener = nic.create_qp(QPType.UD, QPInit(host.pd, cq, cq, CAP))
    host.bring_up(raw, ATTRIBUTES)
    nic.attach_mcast(listener, b"\xff" * 16)
    nic.post_send(raw, [SendWR(SendOpcode.SEND)])
    nic.transmit(0)


def test_the_same_refusal_is_owed_once() -> None:
    pair = Pair()
    pair.client.send(b"nobody waits for it")
    (frame,) = pair.client.nic.transmit(0)
    for _ in range(100):
        pair.server.nic.receive(frame, 0)
    assert len(pair.server.qp.inbound.pending) == 1


def test_a_region_with_windows_stays() -> None:
    meeting = Meeting()
    server = meeting.server
    window = meeting.memory.alloc_mw(server.pd, 1)
    place = Bind(server.region.address, 8, RIGHTS)
    bind_window(meeting.memory.keys, window, server.region.region, place)
    with pytest.raises(VerbsError, match="1 windows are bound"):
        meeting.memory.dereg_mr(server.region.region)
