"""Memory of a GPU that is taken back while an adapter uses it: a NAK, or a local error."""

from random import Random

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.host import ALL_ACCESS, Buffer
from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import End, Pair
from rdmawire.memory.gpu.device import MIB, Gpu, GpuProfile
from rdmawire.memory.gpu.driver import GpuDriver
from rdmawire.memory.gpu.peermem import Peermem
from rdmawire.memory.page import PAGE_64K, Path
from rdmawire.memory.region import Region
from rdmawire.units import us
from rdmawire.verbs.async_event import AccessViolation
from rdmawire.verbs.enums import QPState, WCStatus
from rdmawire.verbs.wr import RecvWR, SendOpcode, Sge
from rdmawire.wire.ib import Nak, Placement, Selectivity
from rdmawire.wire.opcode import Opcode
from tests.ib.stage import PATIENT, Stage, events, key_of, nak_of, outcomes, statuses, to_remote

HOPPER = GpuProfile("hopper", 64 * MIB, 16 * MIB, (9, 0))
ADA = HOPPER._replace(name="ada", compute_capability=(8, 9))
DATA = bytes(range(250)) * 16
BOTH = pytest.mark.parametrize("profile", [HOPPER, ADA], ids=["hopper", "ada"])


class Device:
    """A GPU of one end, and two of its pages registered there, to be taken back at will."""

    def __init__(
        self, end: End, profile: GpuProfile = HOPPER, random: Random | None = None
    ) -> None:
        driver = GpuDriver(end.space)
        self.gpu: Gpu = driver.add(profile, random)
        end.nic.memory.clients.append(Peermem(driver, persistent=False))
        self.address = self.gpu.allocate(2 * MIB).address
        registrar = end.nic.memory
        self.region: Region = registrar.reg_mr(end.pd, self.address, 2 * PAGE_64K, ALL_ACCESS)

    @property
    def there(self) -> Buffer:
        """What a peer needs to know."""
        return Buffer(None, self.region)  # type: ignore[arg-type]

    def sge(self, length: int) -> Sge:
        return Sge(self.address, length, self.region.lkey)


@BOTH
def test_a_gpus_memory_is_written_and_read_without_a_copy(profile: GpuProfile) -> None:
    stage = Stage()
    device = Device(stage.server, profile)
    stage.client.write(DATA, to=device.there)
    back = stage.client.read(len(DATA), of=device.there)
    stage.drive()
    assert back.buffer.read() == DATA
    assert device.gpu.read(device.address, len(DATA)) == DATA
    tally = stage.server.nic.memory.counter[Path.GPU_DIRECT]
    assert (tally.bytes, tally.copies) == (2 * len(DATA), 0)


@pytest.mark.parametrize("selectivity", Selectivity)
def test_a_flush_makes_posted_writes_visible(selectivity: Selectivity) -> None:
    stage = Stage()
    device = Device(stage.server, ADA)
    stage.client.write(DATA, to=device.there)
    stage.drive()
    assert device.gpu.read(device.address, len(DATA)) != DATA
    flush = to_remote(SendOpcode.FLUSH, device.there)
    stage.client.post(
        flush._replace(
            length=len(DATA), placement=Placement.GLOBAL_VISIBILITY, selectivity=selectivity
        )
    )
    stage.drive()
    assert device.gpu.read(device.address, len(DATA)) == DATA
    assert statuses(stage.client) == [WCStatus.SUCCESS] * 2


@pytest.mark.parametrize("seed", range(5))
def test_a_kernel_that_polls_a_flag_sees_the_data_before_it(seed: int) -> None:
    """In virtual time, without a flush; the client's completion may come before both."""
    stage = Stage(Pair(Link(us(1))))
    device = Device(stage.server, ADA, Random(seed))
    stage.client.write(DATA, to=device.there)
    stage.client.write(b"!", to=device.there, offset=PAGE_64K)
    seen: list[tuple[int, bytes, bytes]] = []

    def poll() -> None:
        now, read = stage.now, device.gpu.read
        flag = read(device.address + PAGE_64K, 1, now)
        seen.append((now, flag, read(device.address, len(DATA), now)))
        if flag != b"!":
            stage.pair.simulator.call_at(now + 100, poll)

    stage.pair.simulator.call_at(0, poll)
    stage.drive()
    (first, *_), (last, flag, data) = seen[0], seen[-1]
    assert (first, flag, data) == (0, b"!", DATA)
    arrived = stage.by(stage.client)[-1].time + us(1)
    assert arrived < last <= arrived + 5_000 + 100
    assert all(flag == bytes(1) for _, flag, _ in seen[:-1])


def test_a_completion_overtakes_its_data() -> None:
    stage = Stage(Pair(Link(us(1))))
    device = Device(stage.server, ADA)
    stage.server.receive()
    stage.client.write(DATA, to=device.there, imm=1)
    stage.drive()
    assert statuses(stage.server) == statuses(stage.client) == [WCStatus.SUCCESS]
    arrived = stage.by(stage.client)[-1].time + us(1)
    assert device.gpu.read(device.address, len(DATA), arrived) != DATA
    assert device.gpu.read(device.address, len(DATA), arrived + 5_000) == DATA


def test_memory_revoked_while_a_read_is_answered() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    device = Device(stage.server)
    stage.request(Opcode.RC_RDMA_READ_REQUEST, key_of(device.there, 4000), psn=100)
    assert len(stage.server.nic.transmit(0, 2)) == 2
    device.gpu.free(device.address)
    stage.drive()
    assert nak_of(stage) == (Nak.REMOTE_ACCESS_ERROR, 102)
    assert stage.server.qp.state is QPState.ERR
    assert events(stage.server) == [AccessViolation(stage.server.qp.qp_num)]


def test_memory_revoked_before_a_read_is_answered() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    device = Device(stage.server)
    stage.client.read(4000, of=device.there)
    (request,) = stage.client.nic.transmit(0)
    stage.server.nic.receive(request, 0)
    device.gpu.free(device.address)
    stage.drive()
    assert nak_of(stage) == (Nak.REMOTE_ACCESS_ERROR, 100)
    assert statuses(stage.client) == [WCStatus.REM_ACCESS_ERR]


def test_memory_revoked_before_a_request_arrives() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    device = Device(stage.server)
    device.gpu.free(device.address)
    stage.client.write(DATA, to=device.there)
    stage.drive()
    assert nak_of(stage)[0] == Nak.REMOTE_ACCESS_ERROR
    assert statuses(stage.client) == [WCStatus.REM_ACCESS_ERR]


def test_memory_revoked_within_a_write() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    device = Device(stage.server)
    stage.client.write(DATA, to=device.there)
    first, *rest = stage.client.nic.transmit(0)
    stage.server.nic.receive(first, 0)
    device.gpu.free(device.address)
    stage.server.nic.receive_all(rest, 0)
    stage.drive()
    assert nak_of(stage) == (Nak.REMOTE_ACCESS_ERROR, 101)
    assert statuses(stage.client) == [WCStatus.REM_ACCESS_ERR]
    assert events(stage.server) == [AccessViolation(stage.server.qp.qp_num)]


def test_memory_revoked_within_a_receive() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    device = Device(stage.server)
    recv = RecvWR((device.sge(4000),), 7)
    stage.server.nic.post_recv(stage.server.qp, (recv,))
    stage.client.send(DATA)
    first, *rest = stage.client.nic.transmit(0)
    stage.server.nic.receive(first, 0)
    device.gpu.free(device.address)
    stage.server.nic.receive_all(rest, 0)
    stage.drive()
    assert nak_of(stage) == (Nak.REMOTE_OPERATIONAL_ERROR, 101)
    assert outcomes(stage.server) == [(7, WCStatus.LOC_PROT_ERR)]


def test_memory_of_the_sender_revoked() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    device = Device(stage.client)
    wr = to_remote(SendOpcode.RDMA_WRITE, stage.server.region, device.sge(4000))
    stage.client.post(wr, stage.client.region)
    assert len(stage.client.nic.transmit(0, 2)) == 2
    device.gpu.free(device.address)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.LOC_PROT_ERR]
    assert stage.client.qp.state is QPState.ERR
    assert stage.sent == []


def test_memory_of_the_reader_revoked() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    device = Device(stage.client)
    wr = to_remote(SendOpcode.RDMA_READ, stage.server.region, device.sge(4000))
    stage.client.post(wr, stage.client.region)
    stage.client.nic.transmit(0)
    device.gpu.free(device.address)
    stage.request(Opcode.RC_RDMA_READ_REQUEST, key_of(stage.server.region, 4000), psn=100)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.LOC_PROT_ERR]


def test_memory_revoked_before_an_atomic() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    device = Device(stage.server)
    stage.client.fetch_add(1, of=device.there)
    stage.drive()
    device.gpu.free(device.address)
    stage.client.fetch_add(1, of=device.there)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS, WCStatus.REM_ACCESS_ERR]


def test_memory_of_no_gpu_is_a_bad_address() -> None:
    stage = Stage()
    device = Device(stage.server)
    with pytest.raises(VerbsError):
        stage.server.nic.memory.reg_mr(stage.server.pd, device.address + 32 * MIB, 4096, ALL_ACCESS)
