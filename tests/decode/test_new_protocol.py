"""A tunnel and a payload protocol that are new here: a header and a row of the table each.

The headers are declared as in :mod:`rdmawire.wire.inet`, before anything looks up a name: so this
file is also a script, which the test runs in a process of its own.
"""

import subprocess
import sys
from pathlib import Path

from rdmawire.wire import inet
from rdmawire.wire.header import Header, bits

ROOT = Path(__file__).parents[2]


def test_dissect_edit_and_filters_know_a_new_tunnel_and_a_new_payload() -> None:
    run = [sys.executable, __file__]
    found = subprocess.run(
        run, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, check=False, text=True
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, "known\n", "")


class GRE(Header, clause="RFC 2784, 2", label="gre"):
    """Generic routing encapsulation: a packet in a packet."""

    flags: int = bits(13)
    version: int = bits(3)
    protocol: int = bits(16)


class Capsule(Header, label="capsule"):
    """What the packets to one queue pair begin with."""

    command: int = bits(8)
    number: int = bits(24)


def declare(*tables: type[Header]) -> None:
    """Declare headers as if they were in the module of the Internet's."""
    for table in tables:
        table.__module__ = inet.__name__
        setattr(inet, table.__name__, table)


PROTOCOL, QP = 47, 0x77


def main() -> None:
    """Send a capsule through the tunnel, and read and edit it there."""
    from rdmawire.decode import PROTOCOLS, By, Following, Walk, outline, walk_frame
    from rdmawire.decode.inet import enter_tunnel
    from rdmawire.dissect import Dissector
    from rdmawire.filter import Filter
    from rdmawire.traffic.edit import Editor, text
    from rdmawire.wire.checksum import ipv4_header_checksum
    from rdmawire.wire.ib import BTH
    from rdmawire.wire.inet import ROCE_PORT, UDP, Ethernet, IPProtocol, IPv4
    from rdmawire.wire.layout import joined
    from rdmawire.wire.opcode import Opcode
    from rdmawire.wire.packet import Packet
    from rdmawire.wire.roce import Frame

    def gre(walk: Walk) -> Following:
        enter_tunnel(walk, "GRE")
        return By.ETHERTYPE, walk.take(GRE).protocol

    def capsule(walk: Walk) -> Following:
        walk.take(Capsule)
        walk.take_payload(walk.bth.padcnt)
        return None

    protocols = PROTOCOLS | {(By.IP, PROTOCOL): gre, (By.QP, QP): capsule}

    payload = joined(Capsule(command=1, number=7), b"twelve bytes")
    packet = Packet.make(Opcode.RC_SEND_ONLY, payload=payload, destqp=QP, psn=5)
    inner_ip = IPv4(protocol=IPProtocol.UDP, src=b"\x0a\0\0\1", dst=b"\x0a\0\0\2")
    udp = UDP(srcport=0xC000, dstport=ROCE_PORT, checksum=1)
    inner = Frame((Ethernet(type=0x0800), inner_ip, udp), packet).seal().build()[Ethernet.SIZE :]
    ip = IPv4(protocol=PROTOCOL, src=b"\xc0\0\2\1", dst=b"\xc0\0\2\2", total_length=24 + len(inner))
    ip = ip.replace(checksum=ipv4_header_checksum(ip.build()))
    frame = joined(Ethernet(type=0x0800), ip, GRE(protocol=0x0800), inner)

    names = ["eth", "ip", "gre", "ip", "udp", "bth", "capsule", "payload", "icrc"]
    dissector = Dissector(protocols=protocols)
    before = dissector.dissect(frame)
    assert [node.name for node in before.nodes] == names
    assert [check.good for check in before.checks] == [True] * 4
    assert [node.name for node in Dissector().dissect(frame).nodes] == ["eth", "ip", "payload"]

    headers = walk_frame(frame, protocols=protocols).headers
    assert [type(each.header).label for each in headers] == names[:-2]
    assert outline(frame).packet is None

    rules = [text.assignment("capsule.number=9"), text.ips(["10.0.0.2=10.0.0.9"])]
    rules += [text.psn_offsets(["100"]), text.assignment("gre.flags=3")]
    editor = Editor(rules, protocols=protocols)
    after = dissector.dissect(editor.edit(frame))
    assert [check.good for check in after.checks] == [True] * 4
    bth, changed = after.header(BTH), after.header(Capsule)
    assert (bth and bth.psn) == 105
    assert changed == Capsule(command=1, number=9)
    assert editor.edit(frame) == after.data
    assert not [unused for rule in rules for unused in rule.unused()]

    wanted = Filter("rdmawire.capsule.number == 9 and rdmawire.gre.flags == 3 and udp")
    assert wanted(after)
    assert not wanted(before)
    print("known")


if __name__ == "__main__":
    declare(GRE, Capsule)
    main()
