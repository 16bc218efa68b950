"""A connection as a whole: CM messages, both directions, and who answers whom."""

from rdmawire.capture import Record
from rdmawire.traffic.edit import text
from rdmawire.traffic.edit.mapping import QpAddress
from rdmawire.traffic.edit.rules import EditRule
from rdmawire.wire.cm import DREQ, IPCM4, REP, REQ, PrimaryPathIPv4
from rdmawire.wire.ib import AETH, BTH, DETH, RETH, Ack
from rdmawire.wire.opcode import SHAPES, Opcode
from tests.traffic.edit.frames import A, B, after, frame, packet
from tests.traffic.edit.samples import LINUX, dissected, edited, records

RPING = records(LINUX / "rxe61_rping.pcap")
CLIENT, SERVER = bytes([10, 77, 0, 2]), bytes([10, 77, 0, 1])


def psns(content: list[Record], *, response: bool, source: bytes) -> list[int]:
    """The PSNs of reliable packets that a host sent, in their order."""
    found = []
    for one in dissected(content):
        for bth in (header for header in one.headers() if isinstance(header, BTH)):
            if bth.destqp > 1 and SHAPES[bth.opcode].response == response:
                found += [bth.psn] if one.data[26:30] == source else []
    return found


def only(content: list[Record], table: type) -> list[object]:
    return [each for one in dissected(content) for each in one.headers() if type(each) is table]


def moved(before: list[int], by: int) -> list[int]:
    return [(psn + by) % (1 << 24) for psn in before]


def test_connection_management_names_the_new_addresses_and_queue_pairs() -> None:
    rules: list[EditRule] = [
        text.ips(["10.77.0.0/24=192.168.7.0/24"]),
        text.qpns(["17@10.77.0.2=0x22", "17@10.77.0.1=0x33"]),
        text.pkeys(["0xffff=0x8001"]),
    ]
    content = edited(RPING, rules)
    (request,), (reply,) = only(content, REQ), only(content, REP)
    assert isinstance(request, REQ)
    assert isinstance(reply, REP)
    assert (request.local_qpn, reply.local_qpn, request.p_key) == (0x22, 0x33, 0x8001)
    paths = [each for each in only(content, PrimaryPathIPv4) if isinstance(each, PrimaryPathIPv4)]
    assert (paths[0].local_gid, paths[0].remote_gid) == (
        bytes([192, 168, 7, 2]), bytes([192, 168, 7, 1]),
    )  # fmt: skip
    addresses = [each for each in only(content, IPCM4) if isinstance(each, IPCM4)]
    assert {each.source_ip for each in addresses} == {bytes([192, 168, 7, 2])}
    releases = [each for each in only(content, DREQ) if isinstance(each, DREQ)]
    assert releases
    assert {each.remote_qpn_eecn for each in releases} <= {0x22, 0x33}


def test_all_psns_of_a_capture_move_together_with_those_that_cm_agrees_upon() -> None:
    content = edited(RPING, [text.psn_offsets(["0xfffff0"])])
    for source in (CLIENT, SERVER):
        for response in (False, True):
            before = psns(RPING, response=response, source=source)
            assert len(before) > 3
            assert psns(content, response=response, source=source) == moved(before, -16)
    starts = [each.starting_psn for each in only(content, REQ) if isinstance(each, REQ)]
    assert starts[0] == psns(content, response=False, source=SERVER)[0]
    starts = [each.starting_psn for each in only(content, REP) if isinstance(each, REP)]
    assert starts[0] == psns(content, response=False, source=CLIENT)[0]


def test_the_flow_to_one_queue_pair_is_its_requests_responses_and_cm_messages() -> None:
    rule = text.psn_offsets(["17@10.77.0.1=+100"])
    ends = QpAddress(CLIENT, 17), QpAddress(SERVER, 17)
    rule.peers = {ends[0]: ends[1], ends[1]: ends[0]}
    content = edited(RPING, [rule])
    for source, response, by in (
        (CLIENT, False, 100),
        (SERVER, True, 100),
        (SERVER, False, 0),
        (CLIENT, True, 0),
    ):
        before = psns(RPING, response=response, source=source)
        assert psns(content, response=response, source=source) == moved(before, by)
    (request,), (reply,) = only(content, REQ), only(content, REP)
    assert isinstance(request, REQ)
    assert isinstance(reply, REP)
    assert request.starting_psn == psns(RPING, response=False, source=SERVER)[0]
    assert reply.starting_psn == psns(RPING, response=False, source=CLIENT)[0] + 100
    assert rule.unknown == 0


def test_responses_of_which_nobody_knows_whose_they_are_stay_and_are_counted() -> None:
    rule = text.psn_offsets(["17=100"])
    ack = packet(Opcode.RC_ACKNOWLEDGE, AETH(ack=Ack.ACK, value=31, msn=9), psn=5)
    for _ in range(3):
        assert after(frame(ack), rule).packet.bth.psn == 5
    assert rule.unknown == 3
    assert after(frame(packet(Opcode.RC_SEND_ONLY, psn=5)), rule).packet.bth.psn == 105


def test_the_most_specific_entry_counts() -> None:
    rule = text.psn_offsets(["1", "17=10", "17@10.0.0.2=100"])
    request = packet(Opcode.UC_SEND_ONLY, psn=5)
    assert after(frame(request), rule).packet.bth.psn == 105
    assert after(frame(request, B, A), rule).packet.bth.psn == 15
    other = packet(Opcode.UD_SEND_ONLY, DETH(), destqp=3, psn=5)
    assert after(frame(other), rule).packet.bth.psn == 6


def test_equal_keys_of_both_sides_are_distinguished() -> None:
    keys = {(each.rkey, each.va) for each in only(RPING, RETH) if isinstance(each, RETH)}
    texts = [f"{key:#x}@10.77.0.2={key + 1:#x}" for key, _ in sorted(keys)]
    content = edited(RPING, [text.rkeys(texts)])
    found = {(each.rkey - 1, each.va) for each in only(content, RETH) if isinstance(each, RETH)}
    assert found == keys
