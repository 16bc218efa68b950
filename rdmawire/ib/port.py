"""The port of an adapter: addresses, partitions, link state, raw packets. IBA 14.2.5.

Raw packet queue pairs send and receive complete Ethernet frames: ibv_create_flow(3).
"""

from collections.abc import Sequence
from errno import EINVAL
from typing import Final, NamedTuple

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.ib.device import Device
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.rx_parser import Drop, RxParser
from rdmawire.memory.key import LOCAL_WRITE, KeyFault
from rdmawire.validate import check_bytes, check_int, check_type, iterate
from rdmawire.verbs.ah import GID_BYTES, MAC_BYTES
from rdmawire.verbs.async_event import GIDChanged, PKeyChanged, PortActive, PortError
from rdmawire.verbs.engine import one_thread_at_a_time
from rdmawire.verbs.enums import WCOpcode, WCStatus, WorkCompletion
from rdmawire.verbs.profile import Profile
from rdmawire.verbs.sge import gather
from rdmawire.verbs.wr import RecvWR

PORT: Final = 1
"""The number of the only port. IBA 14.2.5.6."""

_LAST_PKEY: Final = 0xFFFF


@one_thread_at_a_time()
class Port:
    """The part of an adapter that is its port; changes of it are reported as events."""

    device: Device[QueuePair]
    _unsealer: RxParser
    _gids: tuple[bytes, ...]
    _up = True
    _thread: int | None = None

    @property
    def gids(self) -> tuple[bytes, ...]:
        """The port's addresses, of 16 bytes each; packets to others are dropped."""
        return self._gids

    @gids.setter
    def gids(self, gids: Sequence[bytes]) -> None:
        self._gids = checked_gids(gids, self.device.profile)
        self._unsealer.forget()
        self.device.report_port(GIDChanged(PORT))

    @property
    def pkeys(self) -> tuple[int, ...]:
        """The P_Key table, indexed by ``pkey_index`` of a queue pair. IBA 10.9.1.

        Entries with number 0, and those beyond the end, are invalid: no packet matches them.
        """
        return tuple(self.device.pkeys)

    @pkeys.setter
    def pkeys(self, pkeys: Sequence[int]) -> None:
        table = list(iterate("pkeys", pkeys))
        check_int("pkey_tbl_len", len(table), 0, self.device.profile.pkey_tbl_len)
        for pkey in table:
            check_int("pkey", pkey, 0, _LAST_PKEY)
        self.device.pkeys = table
        for qp in self.device.qps.values():
            qp.take_attributes()
        self._unsealer.forget()
        self.device.report_port(PKeyChanged(PORT))

    @property
    def up(self) -> bool:
        """Whether the port's link is up; while it is down, no frames are received or sent."""
        return self._up

    @up.setter
    def up(self, up: bool) -> None:
        check_type("up", up, bool)
        if up != self._up:
            self._up = up
            self.device.link_downed += not up
            self.device.report_port((PortActive if up else PortError)(PORT))


def checked_gids(gids: Sequence[bytes], profile: Profile) -> tuple[bytes, ...]:
    """Return a GID table. ``VerbsError`` EINVAL if it is too long or a GID is invalid."""
    table = tuple(iterate("gids", gids))
    check_int("gid_tbl_len", len(table), 0, profile.gid_tbl_len)
    for gid in table:
        check_bytes("gid", gid, GID_BYTES)
    return table


# Raw packet queue pairs.

_LAST_ETHERTYPE: Final = 0xFFFF


class FlowRule(NamedTuple):
    """The frames that go to a raw packet queue pair: those that match all given fields.

    ``dmac`` has six bytes, ``ethertype`` is a number; ``None`` matches any.
    """

    qp: QueuePair
    dmac: bytes | None = None
    ethertype: int | None = None

    def check(self) -> None:
        """``VerbsError`` EINVAL for impossible values, and for other queue pair types."""
        if self.qp.service.wire is not None:
            raise VerbsError(f"QP {self.qp.number:#x} takes no raw packets", EINVAL)
        if self.dmac is not None:
            check_bytes("dmac", self.dmac, MAC_BYTES)
        if self.ethertype is not None:
            check_int("ethertype", self.ethertype, 0, _LAST_ETHERTYPE)

    def takes(self, frame: bytes) -> bool:
        """Whether a frame matches the rule."""
        ethertype = int.from_bytes(frame[12:14], "big")
        return (
            self.qp.takes_packets
            and self.dmac in (None, frame[:6])
            and self.ethertype in (None, ethertype)
        )


def deliver(qp: QueuePair, frame: bytes) -> None:
    """Write a frame to the next receive; drop it if there is none."""
    recv = qp.take_receive()
    if recv is None:
        qp.device.drops[Drop.NO_WQE] += 1
        qp.counters.out_of_buffer += 1
        return
    status = _placed(qp, recv, frame)
    if status is WCStatus.SUCCESS:
        done = WorkCompletion(
            recv.wr_id, opcode=WCOpcode.RECV, byte_len=len(frame), qp_num=qp.number
        )
        qp.counters.rdma_recvs += qp.report_receive(done)
    else:
        qp.complete_receive(recv, status)
        qp.fail()


def _placed(qp: QueuePair, recv: RecvWR, frame: bytes) -> WCStatus:
    sink = gather(qp.device.keys, qp.recv_pd, recv.sges, LOCAL_WRITE)
    if isinstance(sink, KeyFault):
        return WCStatus.LOC_PROT_ERR
    if len(frame) > sink.length:
        return WCStatus.LOC_LEN_ERR
    try:
        sink.write(0, frame)
    except MemoryFault:
        return WCStatus.LOC_PROT_ERR
    return WCStatus.SUCCESS
