"""Queue pair 1 of a NIC: management datagrams, to and from memory. IBA 13.5.1.

Receives are reposted as soon as they are read, so their number limits the size of a burst.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from rdmawire.errors import VerbsError
from rdmawire.ib.device import GSI_QPN
from rdmawire.ib.encapsulation import way_back
from rdmawire.ib.engine import Nic
from rdmawire.ib.qp import QPInit
from rdmawire.memory.key import Access
from rdmawire.verbs.ah import AddressHandle
from rdmawire.verbs.enums import QPState, WCStatus
from rdmawire.verbs.qp_attr import QPAttributes, QPAttrMask, QPCap
from rdmawire.verbs.wr import INLINE, SIGNALED, RecvWR, SendOpcode, SendWR, Sge
from rdmawire.wire.ib import GRH
from rdmawire.wire.mad import SIZE

GSI_QKEY: Final = 0x8001_0000
"""The Q_Key of general services. IBA 10.2.4.3."""

RECEIVES: Final = 256
SENDS: Final = 1024
LENGTH: Final = GRH.SIZE + SIZE
"""Bytes of a management datagram in memory."""

_CAP = QPCap(max_send_wr=SENDS, max_recv_wr=RECEIVES, max_inline_data=SIZE)
_M = QPAttrMask
_WAY_UP = (
    (QPState.INIT, _M.PKEY_INDEX | _M.PORT | _M.QKEY),
    (QPState.RTR, _M(0)),
    (QPState.RTS, _M.SQ_PSN),
)


class Datagram(NamedTuple):
    """A received datagram: 256 bytes, from one GID to another.

    ``back`` is the path to the sender, if known; ``pkey_index`` the index of the matching P_Key in
    the port's table.
    """

    source: bytes
    destination: bytes
    mad: bytes
    back: AddressHandle | None = None
    pkey_index: int = 0


class GeneralServices:
    """Uses queue pair 1 of a NIC, and memory for it, until ``close``.

    ``received`` is the completion queue of received datagrams, which :meth:`take` empties. ``lost``
    counts datagrams that were dropped because the send queue was full.
    """

    def __init__(self, nic: Nic) -> None:
        self._nic = nic
        self._pd = nic.alloc_pd()
        self.received = nic.create_cq(RECEIVES)
        self._sent = nic.create_cq(SENDS)
        self._memory = nic.device.space.allocate(RECEIVES * LENGTH)
        base = self._memory.base
        self._region = nic.memory.reg_mr(self._pd, base, RECEIVES * LENGTH, Access.LOCAL_WRITE)
        self._qp = nic.create_gsi_qp(QPInit(self._pd, self._sent, self.received, _CAP))
        self.lost = 0
        for state, mask in _WAY_UP:
            nic.modify_qp(self._qp, QPAttributes(qp_state=state, qkey=GSI_QKEY), mask | _M.STATE)
        nic.post_recv(self._qp, map(self._receive, range(RECEIVES)))

    def _receive(self, slot: int) -> RecvWR:
        address = self._region.iova + slot * LENGTH
        return RecvWR((Sge(address, LENGTH, self._region.lkey),), slot)

    @property
    def waiting(self) -> bool:
        """Whether a received datagram was not taken yet."""
        return bool(self.received)

    def take(self) -> Iterator[Datagram]:
        """Take the received datagrams; messages of another length are dropped."""
        for done in self.received.poll(RECEIVES):
            if done.status is not WCStatus.SUCCESS:
                continue
            data = self._memory.read(self._memory.base + done.wr_id * LENGTH, LENGTH)
            self._nic.post_recv(self._qp, (self._receive(done.wr_id),))
            if done.byte_len == LENGTH:
                back = way_back(done, data[: GRH.SIZE])
                mad = data[GRH.SIZE :]
                yield Datagram(back.dgid, back.sgid, mad, back, done.pkey_index)

    def send(self, path: AddressHandle, mad: bytes, pkey_index: int = 0) -> None:
        """Send a MAD of 256 bytes to queue pair 1 at the end of ``path``, with this P_Key index."""
        wr = SendWR(
            SendOpcode.SEND,
            flags=SIGNALED | INLINE,
            ah=path,
            remote_qpn=GSI_QPN,
            remote_qkey=GSI_QKEY,
            inline=mad,
            pkey_index=pkey_index,
        )
        self._sent.poll(SENDS)
        try:
            self._nic.post_send(self._qp, (wr,))
        except VerbsError:
            self.lost += 1

    def close(self) -> None:
        """Give back the queue pair and its memory."""
        nic = self._nic
        nic.destroy_qp(self._qp)
        nic.destroy_cq(self.received)
        nic.destroy_cq(self._sent)
        nic.memory.dereg_mr(self._region)
        nic.device.space.unmap(self._memory)
        nic.dealloc_pd(self._pd)
