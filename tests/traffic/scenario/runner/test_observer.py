"""Which frames an expectation means, against what stands in them."""

from collections.abc import Iterable

import pytest

from rdmawire.fabric.host import Host
from rdmawire.ib.encapsulation import headers_to
from rdmawire.traffic.scenario.runner.observer import Matcher
from rdmawire.wire.ib import BTH
from rdmawire.wire.inet import IPv4
from rdmawire.wire.layout import Piece
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame


def _frame(destqp: int, psn: int, options: bytes = b"") -> bytes:
    one, other = Host(1), Host(2)
    ethernet, ip, udp = headers_to(one.path_to(other), one.mac, 0xC000)
    assert isinstance(ip, IPv4)
    between = [options] if options else []
    headers: list[Piece] = [ethernet, ip.replace(ihl=5 + len(options) // 4), *between, udp]
    bth = BTH(Opcode.UC_SEND_ONLY, destqp=destqp, psn=psn)
    return Frame(tuple(headers), Packet(bth, (), b"8 octets")).seal().build()


def _matched(frames: Iterable[bytes], **where: object) -> list[bool]:
    fits = Matcher({name.replace("_", ".", 1): value for name, value in where.items()})
    return [fits(frame, number) for number, frame in enumerate(frames, 1)]


@pytest.mark.parametrize("options", [b"", b"\1\1\1\0", b"\1\1\1\1" * 3])
def test_queue_pairs_are_distinguished_behind_any_headers(options: bytes) -> None:
    """Behind options, what heads of other frames hold is the beginning of this one's alone."""
    frames = [_frame(destqp, 100, options) for destqp in (17, 18, 17, 18)]
    assert _matched(frames, bth_destqp=17) == [True, False, True, False]


def test_what_stands_behind_the_head_is_looked_at_each_time() -> None:
    frames = [_frame(17, psn) for psn in (100, 101, 100)]
    assert _matched(frames, bth_destqp=17, bth_psn=100) == [True, False, True]
    assert _matched(frames, frame_number=(2, 3)) == [False, True, True]


def test_a_frame_without_a_transport_packet_has_no_such_field() -> None:
    good = _frame(17, 100)
    frames = [good[:36] + b"\0\0" + good[38:], bytes(len(good)), good[:14], b"", good]
    assert _matched(frames, bth_destqp=17) == [False] * 4 + [True]
