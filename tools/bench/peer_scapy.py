# SPDX-License-Identifier: GPL-2.0-only
"""Scapy's rates, as JSON: ``python -m tools.bench.peer_scapy [CAPTURE [FRAMES [COPY]]]``.

Without FRAMES, frames like the first two of the capture are built; with COPY, those of the capture
are edited and written there.

A program of its own, because what imports Scapy has Scapy's licence.
"""

import json
import sys
from functools import partial
from itertools import islice

from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet
from scapy.utils import PcapReader, PcapWriter

from tools.bench.editing import ADDRESSES, MACS, PSN, QPNS
from tools.bench.rate import best_rate


def two_fields(path: str, frames: int) -> int:
    """Read opcode and PSN of each frame."""
    count = 0
    for packet in islice(PcapReader(path), frames):
        bth = packet[BTH]
        count += (bth.opcode + bth.psn) >= 0
    return count


def all_fields(path: str, frames: int) -> int:
    """Read every field of every layer of each frame."""
    count = 0
    for packet in islice(PcapReader(path), frames):
        layer = packet
        while layer:
            for field in layer.fields_desc:
                getattr(layer, field.name)
            layer = layer.payload
        count += 1
    return count


def messages() -> int:
    """Build packets of 64 bytes, with their ICRC, and read them again."""
    count = 2_000
    for psn in range(count):
        packet = Ether() / IP(dst="10.0.0.2") / UDP() / BTH(opcode="RC_SEND_ONLY", psn=psn)
        bytes(Ether(bytes(packet / bytes(64))))
    return count


def build(like: Packet, psn: int) -> bytes:
    """A frame of RoCEv2 with every field given, and what Scapy works out: lengths and CRCs."""
    ether, ip, udp, bth = (like[layer] for layer in (Ether, IP, UDP, BTH))
    return bytes(
        Ether(dst=ether.dst, src=ether.src)
        / IP(src=ip.src, dst=ip.dst, id=ip.id, flags=ip.flags, ttl=ip.ttl)
        / UDP(sport=udp.sport, dport=udp.dport, chksum=0)
        / BTH(
            opcode=bth.opcode,
            pkey=bth.pkey,
            dqpn=bth.dqpn,
            ackreq=bth.ackreq,
            migreq=bth.migreq,
            psn=psn,
        )
        / bytes(bth.payload)
    )


def builds(path: str) -> int:
    """Build frames like those of a capture, the same bytes."""
    models = list(islice(PcapReader(path), 2))
    assert all(build(model, model[BTH].psn) == bytes(model) for model in models)
    count = 1_000
    for psn in range(count):
        for model in models:
            build(model, psn)
    return count * len(models)


def edits(path: str, frames: int, copy: str) -> int:
    """Move frames to other addresses, queue pairs and PSNs, and have their checksums made anew."""
    count = 0
    with PcapWriter(copy, nano=True) as writer:
        for packet in islice(PcapReader(path), frames):
            ether, ip, bth = packet[Ether], packet[IP], packet[BTH]
            ether.src, ether.dst = MACS[ether.src], MACS[ether.dst]
            ip.src, ip.dst = ADDRESSES[ip.src], ADDRESSES[ip.dst]
            bth.dqpn = QPNS.get(bth.dqpn, bth.dqpn)
            bth.psn = (bth.psn + PSN) % (1 << 24)
            ip.chksum = bth.icrc = None
            writer.write(packet)
            count += 1
    return count


def main(path: str = "", frames: str = "", copy: str = "") -> None:
    if copy:
        print(json.dumps(best_rate(partial(edits, path, int(frames), copy))))
        return
    if not path:
        print(json.dumps(best_rate(messages)))
        return
    if not frames:
        print(json.dumps(best_rate(partial(builds, path))))
        return
    rates = {
        "Scapy, two fields": best_rate(partial(two_fields, path, int(frames))),
        "Scapy, all fields": best_rate(partial(all_fields, path, int(frames))),
    }
    print(json.dumps(rates))


if __name__ == "__main__":
    main(*sys.argv[1:])
