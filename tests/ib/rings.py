"""Two hosts whose queues are in memory, host memory or a GPU's, and what programs do with them."""

from collections.abc import Iterator
from errno import ENOMEM

from rdmawire import ALL_ACCESS, H200, GpuDriver, Host, Link, Peermem, QPType, Sge, Simulator
from rdmawire.fabric.host import Memory
from rdmawire.fabric.pair import CAP, connect
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.memory.gpu import Gpu, GpuProfile
from rdmawire.memory.page import PAGE_64K
from rdmawire.memory.region import Region
from rdmawire.verbs.enums import WorkCompletion
from rdmawire.verbs.qp_attr import QPCap
from rdmawire.verbs.work_ring import CompletionRing, WorkRing
from rdmawire.verbs.wr import RecvWR, SendWR

BLOCKS = 16
ENTRIES = 16
SENDS, RECEIVES, CQES, RECORD, CQ_RECORD, DATA = (n * 4096 for n in (0, 2, 4, 6, 7, 8))
"""Offsets in the memory of a :class:`Side`."""


class Side(Host):
    """A host with one queue pair, whose queues are in one region.

    ``memory`` is that region as a program sees it: a GPU's, or the host's.
    """

    qp: QueuePair

    def __init__(
        self,
        number: int,
        gpu: GpuProfile | None = None,
        *,
        blocks: int = BLOCKS,
        entries: int = ENTRIES,
        kind: QPType = QPType.RC,
        cap: QPCap = CAP,
    ) -> None:
        super().__init__(number)
        self.gpu: Gpu | None = None
        self.memory: Memory = self.space
        if gpu is None:
            address = self.space.allocate(PAGE_64K).base
        else:
            driver = GpuDriver(self.space)
            self.nic.memory.clients.append(Peermem(driver, persistent=False))
            self.memory = self.gpu = driver.add(gpu)
            address = self.gpu.allocate(1 << 20).address
        self.region: Region = self.nic.memory.reg_mr(self.pd, address, PAGE_64K, ALL_ACCESS)
        self.base = address
        self.cq = self.nic.create_cq(
            entries,
            cq_buffer=self.sge(CQES, entries * 64),
            doorbell_record=self.sge(CQ_RECORD, 8),
        )
        self.kind = kind
        self.qp = self.nic.create_qp(
            kind,
            QPInit(self.pd, self.cq, self.cq, cap),
            sq_buffer=self.sge(SENDS, blocks * 64),
            rq_buffer=self.sge(RECEIVES, blocks * 64),
            doorbell_record=self.sge(RECORD, 8),
        )
        self.page = self.nic.map_doorbells()
        self.sends = self.ring(SENDS, blocks)
        self.receives = self.ring(RECEIVES, blocks, receives=True)
        self.completions = CompletionRing(self.memory, address + CQES, entries, address + CQ_RECORD)

    def ring(self, offset: int, blocks: int, *, receives: bool = False) -> WorkRing:
        at, record = self.base + offset, self.base + RECORD
        qpn, size = self.qp.qp_num, blocks * 64
        return WorkRing(self.memory, at, size, record, qpn, self.kind, receives=receives)

    def sge(self, offset: int, length: int) -> Sge:
        """``length`` bytes at ``offset`` of the region."""
        return Sge(self.region.iova + offset, length, self.region.lkey)

    def store(self, offset: int, data: bytes) -> None:
        """Write to the region as a program does."""
        self.memory.write(self.base + offset, data)

    def load(self, offset: int, length: int) -> bytes:
        """Read the region as a program does."""
        return self.memory.read(self.base + offset, length)

    def post(self, *work: SendWR | RecvWR) -> list[int]:
        """Write WQEs, the doorbell record and the doorbell. Return their indexes."""
        indexes = []
        for wr in work:
            ring = self.sends if isinstance(wr, SendWR) else self.receives
            indexes.append(ring.post(wr))
        for ring in (self.sends, self.receives):
            self.space.write(self.page.base, ring.publish())
        return indexes

    def poll(self, num_entries: int = 1 << 10) -> list[WorkCompletion]:
        """Completions, whose WQEs are free from now on."""
        done = self.completions.poll(num_entries)
        for wc in done:
            (self.receives if wc.opcode & 128 else self.sends).retire(wc.wr_id)
        return done


class Rings:
    """Two sides on one link, connected."""

    def __init__(
        self,
        client: GpuProfile | None = None,
        server: GpuProfile | None = None,
        *,
        kind: QPType = QPType.RC,
        blocks: int = BLOCKS,
        entries: int = ENTRIES,
    ) -> None:
        self.simulator = Simulator()
        profiles = enumerate((client, server), start=1)
        self.client, self.server = (
            Side(number, gpu, blocks=blocks, entries=entries, kind=kind) for number, gpu in profiles
        )
        link = Link()
        for side in self:
            self.simulator.attach(side.nic, side.mac, link)
        connect(self.client, self.client.qp, self.server, self.server.qp)

    def __iter__(self) -> Iterator[Side]:
        return iter((self.client, self.server))

    def drive(self) -> None:
        """Run until nothing happens any more."""
        self.simulator.run()


__all__ = ["DATA", "ENOMEM", "H200", "Rings", "Side"]
