"""The ICRC of FLUSH as Linux's soft-RoCE has it: over its 32 bytes of headers twice."""

from pathlib import Path
from zlib import crc32

import pytest

from rdmawire.capture import LinkType, Record, create_capture, open_capture
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.select import Selection
from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import ATTRIBUTES, Pair
from rdmawire.ib.rx_parser import Drop
from rdmawire.units import us
from rdmawire.verbs.enums import WCStatus
from rdmawire.verbs.profile import IBTA, RXE, Profile
from rdmawire.wire.opcode import Opcode
from tests.columns.test_read import check
from tests.ib.stage import Stage, statuses

IPV4_AT, BTH_AT, ICRC_AT = 14, 42, 74
"""Places in a FLUSH over Ethernet, IPv4 and UDP: its headers are 12, 4 and 16 bytes."""
NOTE = "good by rxe's rule for FLUSH"


def by_linux(frame: bytes) -> bytes:
    """The ICRC of a FLUSH as rxe_icrc.c computes it, from the frame's bytes alone."""
    head = bytearray(b"\xff" * 8 + frame[IPV4_AT : BTH_AT + 12])
    for place in (1, 8, 10, 11, 26, 27, 32):  # TOS, TTL, checksums of IP and UDP, resv8a
        head[8 + place] = 0xFF
    once = bytes(head) + frame[BTH_AT + 12 : ICRC_AT]
    return crc32(once + frame[BTH_AT:ICRC_AT]).to_bytes(4, "little")


def flushed(profile: Profile, peer: Profile) -> Stage:
    attributes = ATTRIBUTES._replace(timeout=8, retry_cnt=1)
    stage = Stage(Pair(Link(us(1)), profile=profile, peer_profile=peer, attributes=attributes))
    stage.client.write(b"data", to=stage.server.region)
    stage.client.flush(4, of=stage.server.region)
    stage.drive()
    return stage


def of_flush(stage: Stage) -> bytes:
    return next(sent.frame for sent in stage.sent if sent.packet.bth.opcode == Opcode.RC_FLUSH)


def test_two_soft_roce_adapters_accept_each_others_flush() -> None:
    stage = flushed(RXE, RXE)
    assert statuses(stage.client) == [WCStatus.SUCCESS] * 2
    frame = of_flush(stage)
    assert frame[ICRC_AT:] == by_linux(frame)


@pytest.mark.parametrize(("profile", "peer"), [(IBTA, RXE), (RXE, IBTA)])
def test_soft_roce_and_the_standard_do_not_flush_each_other(
    profile: Profile, peer: Profile
) -> None:
    stage = flushed(profile, peer)
    assert statuses(stage.client)[:2] == [WCStatus.SUCCESS, WCStatus.RETRY_EXC_ERR]
    assert stage.server.nic.drops[Drop.ICRC] >= 1


def test_a_broken_one_is_dropped_by_either() -> None:
    stage = flushed(RXE, RXE)
    frame = of_flush(stage)
    for broken in (frame[:-1], frame[:60] + bytes([frame[60] ^ 1]) + frame[61:]):
        before = stage.server.nic.drops.total()
        stage.server.nic.receive(broken, stage.now)
        assert stage.server.nic.drops.total() == before + 1
    assert not stage.server.nic.transmit(stage.now)


FIELDS = ["rdmawire.icrc.status", "rdmawire.icrc.expected", "rdmawire.icrc.note"]


def write_capture(path: Path, profile: Profile) -> None:
    """A FLUSH and its answer, then the FLUSH with another ICRC."""
    pair = Pair(profile=profile)
    pair.client.flush(4, of=pair.server.region)
    (flush,) = pair.client.nic.transmit(0)
    pair.server.nic.receive(flush, 0)
    (answer,) = pair.server.nic.transmit(0)
    with create_capture(path) as writer:
        for frame in (flush, answer, flush[:-1] + bytes([flush[-1] ^ 1])):
            writer.write(Record(frame, 0, len(frame), LinkType.ETHERNET))


@pytest.mark.parametrize(("profile", "note"), [(IBTA, ""), (RXE, NOTE)])
def test_every_way_to_look_at_it_agrees(profile: Profile, note: str, tmp_path: Path) -> None:
    path = tmp_path / "flush.pcap"
    write_capture(path, profile)
    with open_capture(path) as reader:
        frames = list(Dissector().capture(reader))
    assert [[check.good for check in frame.checks][-1] for frame in frames] == [True, True, False]
    assert [f"[{NOTE}]" in str(frame) for frame in frames] == [bool(note), False, False]
    with open_capture(path) as reader:
        rows = [Selection(FIELDS).values(frame) for frame in Dissector().capture(reader)]
    assert [row[0] for row in rows] == [["good"], ["good"], ["bad"]]
    assert [row[2] for row in rows] == [[note] if note else [], [], []]
    check(path)
