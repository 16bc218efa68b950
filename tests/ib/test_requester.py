"""Send work becomes packets: opcodes, PSNs, AckReq, where payload comes from. IBA 9.7.1, 9.7.3."""

import pytest

from rdmawire.fabric.pair import ATTRIBUTES, End, Pair
from rdmawire.verbs.enums import QPType, WCOpcode, WCStatus
from rdmawire.verbs.profile import IBTA, RXE, Profile
from rdmawire.verbs.wr import SIGNALED, RecvWR, SendFlags, SendOpcode, SendWR, Sge
from rdmawire.wire.ib import RETH, ImmDt
from rdmawire.wire.management import MTU
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.serial import MODULUS
from tests.ib.stage import PATIENT, Stage, only, outcomes, statuses, to_remote

MTUS = {mtu: 128 << mtu for mtu in MTU if mtu <= MTU.MTU_4096}
BYTES = bytes(range(251)) * 80


def stage_of(mtu: MTU = MTU.MTU_1024, **more: object) -> Stage:
    return Stage(Pair(attributes=ATTRIBUTES._replace(path_mtu=mtu), **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("mtu", MTUS)
@pytest.mark.parametrize(
    ("excess", "names"),
    [
        (-1, ["ONLY"]),
        (0, ["ONLY"]),
        (1, ["FIRST", "LAST"]),
        ("twice", ["FIRST", "LAST"]),
        ("more", ["FIRST", "MIDDLE", "LAST"]),
    ],
)
@pytest.mark.parametrize("kind", [QPType.RC, QPType.UC])
def test_a_message_is_cut_at_the_path_mtu(
    kind: QPType, mtu: MTU, excess: int | str, names: list[str]
) -> None:
    stage = stage_of(mtu, kind=kind)
    size = MTUS[mtu]
    length = {"twice": 2 * size, "more": 2 * size + 1}.get(str(excess)) or size + int(excess)
    got = stage.server.receive(length)
    stage.client.write(BYTES[:length], to=stage.server.region)
    stage.client.send(BYTES[:length])
    stage.drive()
    assert stage.server.region.read(length) == got.buffer.read() == BYTES[:length]
    wire = kind.name
    expected = [f"{wire}_RDMA_WRITE_{name}" for name in names] + [
        f"{wire}_SEND_{name}" for name in names
    ]
    assert [opcode.name for opcode in stage.opcodes(stage.client)] == expected
    assert {len(sent.packet.payload) for sent in stage.by(stage.client)[:-1]} <= {
        size,
        length % size or size,
    }


@pytest.mark.parametrize(
    ("opcode", "ending"),
    [
        (SendOpcode.SEND, "SEND_LAST"),
        (SendOpcode.SEND_WITH_IMM, "SEND_LAST_WITH_IMMEDIATE"),
        (SendOpcode.RDMA_WRITE, "RDMA_WRITE_LAST"),
        (SendOpcode.RDMA_WRITE_WITH_IMM, "RDMA_WRITE_LAST_WITH_IMMEDIATE"),
    ],
)
def test_the_last_packet_carries_the_immediate_and_the_first_the_address(
    opcode: SendOpcode, ending: str
) -> None:
    stage = stage_of()
    stage.server.receive(5000)
    source = stage.client.filled(BYTES[:3000])
    there = stage.server.region
    wr = to_remote(opcode, there, source.sge())
    stage.client.post(wr._replace(imm_data=0xABCD), source)
    stage.drive()
    packets = [sent.packet for sent in stage.by(stage.client)]
    assert Opcode(packets[-1].bth.opcode).name == f"RC_{ending}"
    with_address = [index for index, packet in enumerate(packets) if packet.header(RETH)]
    with_immediate = [index for index, packet in enumerate(packets) if packet.header(ImmDt)]
    assert with_address == ([0] if "WRITE" in ending else [])
    assert with_immediate == ([2] if "IMM" in ending else [])
    reth = packets[0].header(RETH)
    assert reth is None or reth == RETH(there.address, there.rkey, 3000)


def test_psns_go_round_at_their_end() -> None:
    there = ATTRIBUTES._replace(sq_psn=MODULUS - 2, rq_psn=MODULUS - 2)
    stage = Stage(Pair(attributes=there))
    stage.client.write(BYTES[:5000], to=stage.server.region)
    read = stage.client.read(3000, of=stage.server.region)
    stage.client.write(b"end", to=stage.server.region)
    stage.drive()
    assert stage.psns(stage.client) == [MODULUS - 2, MODULUS - 1, 0, 1, 2, 3, 6]
    assert stage.psns(stage.server) == [2, 3, 4, 5, 6]
    assert read.buffer.read() == BYTES[:3000]
    assert statuses(stage.client) == [WCStatus.SUCCESS] * 3


@pytest.mark.parametrize("kind", [QPType.RC, QPType.UC, QPType.UD])
def test_messages_of_no_bytes_are_packets_all_the_same(kind: QPType) -> None:
    stage = Stage(Pair(kind=kind))
    stage.server.receive()
    stage.client.send()
    stage.drive()
    assert stage.opcodes(stage.client) == [Opcode[f"{kind.name}_SEND_ONLY"]]
    assert only(stage.server).byte_len == stage.server.qp.service.grh
    assert only(stage.client).status is WCStatus.SUCCESS


def test_a_write_and_a_read_of_no_bytes_need_no_good_key() -> None:
    stage = Stage()
    for opcode in (SendOpcode.RDMA_WRITE, SendOpcode.RDMA_READ):
        nowhere = SendWR(opcode, remote_address=1, rkey=0xBAD)
        stage.client.post(nowhere, stage.client.region)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS] * 2


def test_many_pieces_of_memory_make_one_message() -> None:
    stage = Stage()
    whole = stage.client.filled(BYTES[:4000])
    pieces = (whole.sge(1, 7), whole.sge(0, 9), whole.sge(2000, 100), whole.sge(1022, 2500))
    parts = [stage.server.buffer(4000) for _ in range(4)]
    sizes = (3, 1021, 0, 2001)
    sges = tuple(part.sge(size) for part, size in zip(parts, sizes, strict=True))
    stage.server.nic.post_recv(stage.server.qp, (RecvWR(sges, 1),))
    stage.client.post(SendWR(SendOpcode.SEND, pieces), whole)
    stage.drive()
    sent = BYTES[7:8] + BYTES[100:2100] + BYTES[2500:3522]
    assert b"".join(p.read(n) for p, n in zip(parts, sizes, strict=True))[:3023] == sent
    assert only(stage.server).byte_len == 3023


def test_a_read_is_placed_in_many_pieces() -> None:
    stage = Stage()
    stage.server.region.write(BYTES[:3000])
    sink = stage.client.buffer(4000)
    sges = (sink.sge(1000, 3000), sink.sge(500, 0), sink.sge(1500, 1000))
    stage.client.post(to_remote(SendOpcode.RDMA_READ, stage.server.region, *sges), sink)
    stage.drive()
    assert sink.read(1000, 3000) == BYTES[:1000]
    assert sink.read(500, 0) == BYTES[1000:1500]
    assert sink.read(1500, 1000) == BYTES[1500:3000]
    assert only(stage.client)[2:5] == (WCOpcode.RDMA_READ, 0, 3000)


def test_inline_bytes_need_no_memory() -> None:
    stage = Stage()
    got = stage.server.receive(5)
    flags = SIGNALED | SendFlags.INLINE
    stage.client.post(SendWR(SendOpcode.SEND, flags=flags, inline=b"hello"), stage.client.region)
    stage.drive()
    assert got.buffer.read() == b"hello"


@pytest.mark.parametrize("opcode", [SendOpcode.SEND, SendOpcode.RDMA_WRITE])
def test_inline_work_sends_what_its_pieces_name_when_it_is_posted(opcode: SendOpcode) -> None:
    """No key is looked at, and what becomes of the memory later does not matter."""
    stage = Stage()
    got = stage.server.receive(8)
    memory = stage.client.space.allocate(4096)
    memory.write(memory.base, b"inline data")
    sges = (Sge(memory.base, 6, 0xBAD), Sge(1, 0, 0), Sge(memory.base + 9, 2, 0))
    wr = to_remote(opcode, stage.server.region, *sges)
    wr = wr._replace(flags=SIGNALED | SendFlags.INLINE)
    stage.client.post(wr, stage.client.region)
    memory.write(memory.base, bytes(11))
    stage.client.space.unmap(memory)
    stage.drive()
    place = stage.server.region if opcode is SendOpcode.RDMA_WRITE else got.buffer
    assert place.read(8) == b"inlineta"
    assert only(stage.client).status is WCStatus.SUCCESS


def test_unsignalled_work_completes_unseen_unless_the_queue_pair_signals_all() -> None:
    stage = Stage()
    for signal_all in (False, True):
        stage.client.qp.signal_all = signal_all
        stage.client.post(SendWR(SendOpcode.RDMA_WRITE, flags=0), stage.client.region)
        stage.drive()
        assert statuses(stage.client) == [WCStatus.SUCCESS] * signal_all
        assert len(stage.client.qp.sq) == 0


def test_unsignalled_work_that_fails_is_seen() -> None:
    stage = Stage()
    wr = SendWR(SendOpcode.RDMA_WRITE, (Sge(1, 5, 0xBAD),), flags=0)
    stage.client.post(wr, stage.client.region)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.LOC_PROT_ERR]


def test_the_solicited_event_bit_stands_in_the_last_packet_of_what_takes_a_receive() -> None:
    stage = Stage()
    flags = SIGNALED | SendFlags.SOLICITED
    there = stage.server.region
    source = stage.client.filled(BYTES[:2000])
    for opcode in (SendOpcode.SEND, SendOpcode.RDMA_WRITE_WITH_IMM):
        stage.server.receive(2000)
        stage.client.post(to_remote(opcode, there, source.sge())._replace(flags=flags), source)
    stage.drive()
    se = [sent.packet.bth.se for sent in stage.by(stage.client)]
    assert se == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("profile", "asking"), [(IBTA, [63, 127, 191, 199]), (RXE, [65, 131, 197, 199])]
)
def test_an_ack_is_asked_for_with_the_last_packet_and_now_and_then(
    profile: Profile, asking: list[int]
) -> None:
    stage = stage_of(MTU.MTU_256, profile=profile)
    stage.client.write(bytes(200 * 256), to=stage.server.region)
    stage.drive()
    asked = [index for index, sent in enumerate(stage.by(stage.client)) if sent.packet.bth.ackreq]
    assert asked == asking
    assert len(stage.aeths(stage.server)) <= len(asking)


@pytest.mark.parametrize("kind", [QPType.UC, QPType.UD])
def test_services_that_do_not_acknowledge_ask_for_nothing(kind: QPType) -> None:
    stage = Stage(Pair(kind=kind))
    stage.client.send(b"hello")
    stage.drive()
    assert [sent.packet.bth.ackreq for sent in stage.sent] == [0]


def test_no_more_packets_are_unacknowledged_than_the_profile_allows() -> None:
    there = PATIENT._replace(path_mtu=MTU.MTU_256)
    stage = Stage(Pair(profile=RXE, attributes=there))
    stage.client.write(bytes(200 * 256), to=stage.server.region)
    frames: list[bytes] = []
    while burst := stage.client.nic.transmit(0):
        frames += burst
    assert len(frames) == RXE.packets_in_flight
    for frame in frames:
        stage.server.nic.receive(frame, 0)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS]


def test_one_burst_holds_no_more_frames_than_asked_for() -> None:
    stage = stage_of()
    stage.client.write(bytes(5000), to=stage.server.region)
    assert [len(stage.client.nic.transmit(0, most)) for most in (1, 3, 9, 9)] == [1, 3, 1, 0]


def test_reads_and_atomics_under_way_are_no_more_than_agreed_upon() -> None:
    stage = Stage(Pair(attributes=ATTRIBUTES._replace(max_rd_atomic=2)))
    for _ in range(3):
        stage.client.fetch_add(1, of=stage.server.region)
    stage.client.write(b"behind", to=stage.server.region, offset=8)
    assert len(stage.client.nic.transmit(0)) == 2
    stage.client.nic.handle_timer(stage.client.nic.next_timer() or 0)  # those two were lost
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS] * 4
    assert stage.server.region.read(8) == (3).to_bytes(8, "little")


@pytest.mark.parametrize("fence", [0, SendFlags.FENCE])
def test_a_fence_waits_for_reads_and_atomics_before_it(fence: int) -> None:
    stage = Stage()
    stage.client.read(8, of=stage.server.region)
    flags = SIGNALED | fence
    stage.client.post(SendWR(SendOpcode.RDMA_WRITE, flags=flags), stage.client.region)
    assert len(stage.client.nic.transmit(0)) == (1 if fence else 2)


def test_a_fence_does_not_wait_for_sends_and_writes() -> None:
    stage = Stage()
    stage.client.write(b"first", to=stage.server.region)
    wr = SendWR(SendOpcode.RDMA_WRITE, flags=SIGNALED | SendFlags.FENCE)
    stage.client.post(wr, stage.client.region)
    assert len(stage.client.nic.transmit(0)) == 2


def test_completions_come_in_the_order_of_posting_whatever_answers_first() -> None:
    stage = Stage()
    expected = [_post_any(stage.client, stage.server, index) for index in range(12)]
    stage.drive()
    assert outcomes(stage.client) == [(wr_id, WCStatus.SUCCESS) for wr_id in expected]


def _post_any(client: End, server: End, index: int) -> int:
    if index % 3 == 0:
        return client.read(2500, of=server.region).wr_id
    if index % 3 == 1:
        return client.fetch_add(1, of=server.region).wr_id
    return client.write(BYTES[:2500], to=server.region).wr_id
