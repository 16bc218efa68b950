"""The exceptions to "octet for octet", each with the frames that need it."""

from collections.abc import Iterator

from rdmawire.nic.address import udp_source_port
from rdmawire.wire import roce
from rdmawire.wire.ib import AETH
from rdmawire.wire.inet import UDP
from rdmawire.wire.opcode import Service
from rdmawire.wire.packet import Packet
from tests.nic.replay import capture
from tests.nic.replay.capture import Seen
from tests.nic.replay.cases import ANSWERERS, ENDS, SENDERS, cases
from tests.nic.replay.conversation import CLIENT, SERVER, Side, side
from tests.nic.replay.exceptions import SPURIOUS, with_identification
from tests.nic.replay.facts import LOST, TWICE
from tests.nic.replay.player import Compared, Replay

MANAGEMENT_FRAMES = 7
_BURSTS = [
    end
    for end in ANSWERERS
    if end.capture.name not in {*LOST, *TWICE, *SPURIOUS, "rxe61_vt_rc_sendinv"}
]
"""Where no answer was lost and no request repeated."""


def test_identification_is_all_that_differs_over_ipv4() -> None:
    captured, ours = next(pairs(Replay(client("rxe61_write_lat")).run()))
    assert ours != captured.octets
    assert with_identification(ours, captured.frame) == captured.octets


def test_over_ipv6_nothing_differs() -> None:
    for captured, ours in pairs(Replay(client("rxe61_vt_rc_v6")).run()):
        assert ours == captured.octets


def test_ports_of_datagrams_are_hashed_from_the_senders_number() -> None:
    for seen, own, _ in labelled():
        udp = seen.header(UDP)
        assert udp is not None
        if is_datagram(seen):
            assert udp.srcport == 0xC000 + (own * 0x61C88647 % (1 << 32) >> 18)


def test_a_connection_made_by_rdma_cm_has_a_flow_label() -> None:
    names = {end.capture.name for seen, _, end in labelled() if not is_datagram(seen)}
    assert names == {"rxe61_rping"}


def labelled() -> list[tuple[Seen, int, Side]]:
    """Frames whose UDP source port the numbers of the queue pairs do not give."""
    found = []
    for end in ENDS:
        for seen in end.sent:
            own, udp = end.pair_of(seen).own, seen.header(UDP)
            assert udp is not None
            if udp.srcport != udp_source_port(0, own, seen.qpn):
                found.append((seen, own, end))
    return found


def is_datagram(seen: Seen) -> bool:
    return seen.shape.service is Service.UD


def test_management_datagrams_are_left_out() -> None:
    assert sum(capture.read(name).management for name in capture.names()) == MANAGEMENT_FRAMES


def test_spurious_requests_come_before_an_answer_is_late() -> None:
    for name, numbers in SPURIOUS.items():
        end = client(name)
        timeout = 4096 << 14
        for seen in end.sent:
            if seen.number in numbers:
                assert seen.time - sent_before(end, seen).time < timeout


def sent_before(end: Side, seen: Seen) -> Seen:
    """The same request, the time before."""
    same = [one for one in end.sent if one.psn == seen.psn and one.number < seen.number]
    return same[-1]


def test_a_lost_read_response_is_missed_at_the_next_one() -> None:
    replay = Replay(client("rxe61_loss_read_resp")).run()
    again = [one for one in replay.compared if one.captured.number == 19]
    assert again
    assert not replay.waits


def test_linux_counts_its_timeouts_in_ticks() -> None:
    waits = [wait for end in SENDERS for wait in Replay(end).run().waits]
    assert any(wait.ours > wait.linux for wait in waits)


@cases(_BURSTS, "bursts")
def test_answers_to_bursts_are_among_those_of_linux_and_end_alike(end: Side) -> None:
    ours, captured = answers_to_bursts(end)
    allowed = [without_msn(seen.frame) for seen in captured]
    assert all(without_msn(roce.parse(octets)) in allowed for octets in ours)
    assert with_identification(ours[-1], captured[-1].frame) == captured[-1].octets


def test_acks_to_bursts_are_fewer() -> None:
    ours, captured = answers_to_bursts(server("rxe61_send_bw_rc"))
    assert 0 < len(ours) < len(captured)


def test_responses_to_bursts_have_the_msn_of_the_last_request() -> None:
    ours, captured = answers_to_bursts(server("rxe61_atomic_bw_faa"))
    assert [msn(roce.parse(octets)) for octets in ours] == [5, 5, 5, 5, 5]
    assert [msn(seen.frame) for seen in captured] == [1, 2, 3, 4, 5]


def answers_to_bursts(end: Side) -> tuple[list[bytes], list[Seen]]:
    """Our responses, when Linux's went out, and Linux's."""
    compared = [one for one in Replay(end, bursts=True).run().compared if is_answer(one)]
    return [one.ours for one in compared if one.ours], [one.captured for one in compared]


def is_answer(one: Compared) -> bool:
    return one.captured.shape.response


def without_msn(frame: roce.Frame) -> Packet:
    """The packet, whatever messages its AETH counts."""
    packet = frame.packet
    extended = (h.replace(msn=0) if isinstance(h, AETH) else h for h in packet.extended)
    return packet._replace(extended=tuple(extended))


def msn(frame: roce.Frame) -> int:
    return next(h.msn for h in frame.packet.extended if isinstance(h, AETH))


def pairs(replay: Replay) -> Iterator[tuple[Seen, bytes]]:
    """Captured frames with ours."""
    for captured, ours in replay.compared:
        assert ours is not None
        yield captured, ours


def client(name: str) -> Side:
    return side(capture.read(name), CLIENT)


def server(name: str) -> Side:
    return side(capture.read(name), SERVER)
