"""Raw packet queue pairs: whole Ethernet frames, from and to memory. ibv_create_flow(3)."""

from errno import EINVAL
from typing import Final, NamedTuple

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.rx_parser import Drop
from rdmawire.memory.access import LOCAL_WRITE
from rdmawire.memory.grant import KeyFault
from rdmawire.validate import check_bytes, check_int
from rdmawire.verbs.ah import MAC_BYTES
from rdmawire.verbs.enums import WCOpcode, WCStatus, WorkCompletion
from rdmawire.verbs.sge import gather
from rdmawire.verbs.wr import RecvWR

_LAST_ETHERTYPE: Final = 0xFFFF


class FlowRule(NamedTuple):
    """Which frames go to a raw packet queue pair: those that have what is given here.

    ``dmac`` has six bytes, ``ethertype`` is a number; ``None`` asks for nothing.
    """

    qp: QueuePair
    dmac: bytes | None = None
    ethertype: int | None = None

    def check(self) -> None:
        """``VerbsError`` EINVAL for what no frame could have, and for other queue pairs."""
        if self.qp.service.wire is not None:
            raise VerbsError(f"QP {self.qp.number:#x} takes no raw packets", EINVAL)
        if self.dmac is not None:
            check_bytes("dmac", self.dmac, MAC_BYTES)
        if self.ethertype is not None:
            check_int("ethertype", self.ethertype, 0, _LAST_ETHERTYPE)

    def takes(self, frame: bytes) -> bool:
        """Whether a frame is for the queue pair."""
        ethertype = int.from_bytes(frame[12:14], "big")
        return (
            self.qp.takes_packets
            and self.dmac in (None, frame[:6])
            and self.ethertype in (None, ethertype)
        )


def deliver(qp: QueuePair, frame: bytes) -> None:
    """Place a frame where the next receive says; without one it is dropped."""
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
