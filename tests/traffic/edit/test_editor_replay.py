"""Real requests of Linux, moved to an adapter with other addresses: it takes them as its own.

Captures of soft-RoCE are edited as a whole: addresses, queue pairs, the PSNs of one direction, keys
and remote addresses. Then our adapter takes the server's place, with what it is to have by the
edited capture alone, and must answer every request as the edited answers say.
"""

from collections.abc import Iterator

import pytest

from rdmawire.decode import host
from rdmawire.ib.rx_parser import Drop
from rdmawire.traffic.edit import Editor, text
from rdmawire.traffic.edit.mapping import QpAddress
from rdmawire.traffic.edit.rules import EditRule
from rdmawire.wire import roce
from rdmawire.wire.ib import IETH, RETH, AtomicETH
from rdmawire.wire.inet import UDP
from rdmawire.wire.show import ipv6
from tests.ib.replay.capture import Capture, Seen
from tests.ib.replay.cases import ANSWERERS
from tests.ib.replay.conversation import SERVER, Side, side
from tests.ib.replay.exceptions import with_identification
from tests.ib.replay.player import Compared, Replay

SHIFT = 0x7_0000_0000
"""By how much the memory of both sides moves."""
KEY, QPN = 0x5A5A_0000, 40
"""Bits of keys that turn over, and what is added to the numbers of queue pairs."""
PSN = 0x7F_FFF0
"""What is added to the PSNs of requests to the server; its own requests keep theirs."""


def is_even(end: Side) -> bool:
    """Whether both ends of each connection have one number; else ports show which belong together.

    Soft-RoCE makes the UDP port out of both numbers, which an edit does not.
    """
    return all(pair.peer in (0, pair.own) for pair in end.pairs())


MOVED = [end for end in ANSWERERS if end.name == SERVER and is_even(end)]


def keys(end: Side) -> set[int]:
    """The keys that requests name, and those of the greetings."""
    found = {greeting.rkey for greeting in end.capture.greetings.values()}
    headers = (each for seen in end.capture.frames for each in seen.frame.packet.extended)
    return found | {each.rkey for each in headers if isinstance(each, RETH | AtomicETH | IETH)}


def rules(end: Side) -> list[EditRule]:
    """The edit of a capture."""
    numbers = {pair.own for pair in end.pairs()}
    psns = text.psn_offsets([f"{number}@{ipv6(end.gid)}={PSN}" for number in numbers])
    client = next(seen.source for seen in end.received)
    here, there = host(end.gid), host(client)
    psns.peers = {
        QpAddress(one, number): QpAddress(other, number)
        for number in numbers
        for one, other in ((here, there), (there, here))
    }
    return [
        text.macs(["52:54:00:00:00:01=02:00:00:00:00:0a", "52:54:00:00:00:02=02:00:00:00:00:0b"]),
        text.ips(["10.77.0.0/24=192.168.7.0/24", "fd77::/64=fd99::/64"]),
        text.qpns([f"{number}={number + QPN}" for number in numbers]),
        text.rkeys([f"{key}={key ^ KEY}" for key in keys(end)]),
        text.va_offsets([str(SHIFT)]),
        psns,
    ]


def moved(end: Side) -> Side:
    """The same end in the edited capture."""
    old = end.capture
    editor = Editor(rules(end))

    def edited(frames: tuple[Seen, ...]) -> Iterator[Seen]:
        for seen in frames:
            data = editor.edit(seen.data)
            yield seen._replace(data=data, frame=roce.parse(data))

    frames, management = tuple(edited(old.frames)), tuple(edited(old.management))
    gids = {seen.source: new.source for seen, new in zip(old.frames, frames, strict=True)}
    greetings = {
        gids[gid]: greeting._replace(rkey=greeting.rkey ^ KEY, address=greeting.address + SHIFT)
        for gid, greeting in old.greetings.items()
        if gid in gids
    }
    new = Capture(old.name, old.server, old.client, frames, management, greetings)
    return side(new, end.name)


def with_port(compared: Compared) -> bytes:
    """Our frame with the captured UDP source port, which soft-RoCE makes of other numbers."""
    assert compared.ours is not None
    port = compared.captured.header(UDP)
    assert port is not None
    frame = roce.parse(compared.ours)
    headers = tuple(
        header.replace(srcport=port.srcport) if isinstance(header, UDP) else header
        for header in frame.headers
    )
    return with_identification(
        frame._replace(headers=headers).seal().build(), compared.captured.frame
    )


@pytest.mark.parametrize("end", MOVED, ids=lambda end: str(end.capture.name))
def test_an_adapter_elsewhere_answers_every_request_as_the_edited_capture_says(end: Side) -> None:
    there = moved(end)
    assert (there.mac, there.gid[-4:-1]) != (end.mac, end.gid[-4:-1])
    replay = Replay(there).run()
    answers = [one for one in replay.compared if one.captured.shape.response]
    assert answers
    for one in answers:
        assert with_port(one) == one.captured.data
    assert replay.nic.drops[Drop.ICRC] == replay.nic.drops[Drop.NOT_MINE] == 0
    for address, data in replay.written.runs():
        assert replay.end.space.read(address, len(data)) == data


def test_most_captures_can_be_moved_so() -> None:
    assert len(MOVED) > 20


def test_unless_it_is_edited_nothing_is_for_an_adapter_elsewhere() -> None:
    end = MOVED[0]
    replay = Replay(moved(end))
    replay.end.connect()
    for seen in end.received:
        replay.nic.receive(seen.data, seen.time)
    assert replay.nic.drops[Drop.NOT_MINE] == len(end.received)
