"""Queues in memory beside a plain model: lists of posted work, and the peer's memory as bytes."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rdmawire import H200
from rdmawire.memory.gpu import A100
from rdmawire.verbs.enums import WCOpcode, WCStatus
from rdmawire.verbs.wr import RecvWR, SendFlags, SendOpcode, SendWR
from tests.ib.rings import DATA, Rings, Side

SIZE = 512


class Queues(RuleBasedStateMachine):
    """Every WQE that a doorbell announced completes once, in order, if it is signaled."""

    rings: Rings

    @initialize(
        gpus=st.tuples(*[st.sampled_from((None, H200, A100))] * 2),
        blocks=st.sampled_from((4, 8, 16)),
        entries=st.sampled_from((8, 32)),
    )
    def connect(self, gpus: tuple[object, object], blocks: int, entries: int) -> None:
        self.rings = Rings(*gpus, blocks=blocks, entries=entries)  # type: ignore[arg-type]
        self.entries = entries
        self.memory = bytearray(SIZE)
        self.expected: list[int] = []
        self.receives = 0
        self.received: list[tuple[WCOpcode, int]] = []
        self.unpolled = 0

    @property
    def client(self) -> Side:
        return self.rings.client

    @property
    def server(self) -> Side:
        return self.rings.server

    @precondition(lambda self: self.client.sends.free >= 4 and self.unpolled < self.entries - 1)
    @rule(
        data=st.binary(max_size=120),
        offset=st.integers(0, SIZE - 120),
        signaled=st.booleans(),
        imm=st.integers(0, 99),
    )
    def write(self, data: bytes, offset: int, signaled: bool, imm: int) -> None:
        """An inline WRITE of 1 to 3 blocks; with an immediate while there are receives."""
        with_imm = self.receives > 0 and imm > 49
        wr = SendWR(
            SendOpcode.RDMA_WRITE_WITH_IMM if with_imm else SendOpcode.RDMA_WRITE,
            flags=SendFlags.INLINE | (SendFlags.SIGNALED if signaled else 0),
            remote_address=self.server.region.iova + DATA + offset,
            rkey=self.server.region.rkey,
            imm_data=imm if with_imm else 0,
            inline=data,
        )
        index = self.client.sends.post(wr)
        self.memory[offset : offset + len(data)] = data
        if signaled:
            self.expected.append(index)
            self.unpolled += 1
        if with_imm:
            self.receives -= 1
            self.received.append((WCOpcode.RECV_RDMA_WITH_IMM, imm))

    @precondition(lambda self: self.server.receives.free and self.receives < self.entries)
    @rule()
    def receive(self) -> None:
        """A receive, announced at once, so that no message finds none."""
        self.server.post(RecvWR())
        self.receives += 1

    @rule()
    def announce(self) -> None:
        """The doorbell record, and the doorbell."""
        self.client.post()

    @rule()
    def run(self) -> None:
        self.client.post()
        self.rings.drive()
        for side in self.rings:
            if side.gpu is not None:
                side.gpu.flush()
        assert self.server.load(DATA, SIZE) == self.memory

    @rule(most=st.integers(1, 9))
    def poll(self, most: int) -> None:
        for wc in self.client.poll(most):
            assert wc.status is WCStatus.SUCCESS
            assert wc.wr_id == self.expected.pop(0)
            self.unpolled -= 1

    @rule()
    def poll_receives(self) -> None:
        for wc in self.server.poll():
            assert (wc.opcode, wc.imm_data) == self.received.pop(0)

    @invariant()
    def nothing_happened_unasked(self) -> None:
        if hasattr(self, "entries"):
            assert not self.client.events()
            assert not self.server.events()
            assert self.client.nic.doorbells_discarded == 0


Queues.TestCase.settings = settings(
    max_examples=40, stateful_step_count=50, suppress_health_check=[HealthCheck.filter_too_much]
)
TestQueues = Queues.TestCase
