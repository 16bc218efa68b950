"""What tshark 4.0.17 shows of some mutants, as it was recorded: comparisons that run without it.

``python -m tests.fuzz.tshark_recorded`` records it again with the tshark that is installed.
"""

import gzip
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from rdmawire.capture import open_capture
from rdmawire.dissect.fields import FieldInfo
from rdmawire.fuzz.command_target import write_frames
from rdmawire.fuzz.frame_mutation import Mutant, Mutation, SeedFrame
from rdmawire.fuzz.tshark_fields import Values, pdml_values
from rdmawire.fuzz.tshark_process import pdml_packets, split_packets
from rdmawire.wire.opcode import Opcode

CAPTURES = Path(__file__).parents[2] / "captures"
RECORDED = Path(__file__).parent / "tshark_recorded.pdml.gz"
_END = b"</pdml>\n"


@cache
def frames(name: str) -> tuple[SeedFrame, ...]:
    with open_capture(CAPTURES / name) as reader:
        return tuple(SeedFrame(record.data, record.link_type) for record in reader)


def of(seed: SeedFrame, *mutations: Mutation) -> SeedFrame:
    return seed._replace(data=Mutant(seed, mutations).build())


def number(header: str, row: str, value: int) -> Mutation:
    return Mutation("set", header, row=row, value=value)


def text(header: str, row: str, value: bytes) -> Mutation:
    return number(header, row, int.from_bytes(value.ljust(64, b"\0"), "big"))


RC = [one for one in frames("golden/rc.pcap") if one.data[36:38] == b"\x12\xb7"]
WRITE = next(one for one in RC if one.data[42] == Opcode.RC_RDMA_WRITE_ONLY)
IMMEDIATE = next(one for one in RC if one.data[42] == Opcode.RC_SEND_ONLY_WITH_IMMEDIATE)
ACKNOWLEDGE = next(one for one in RC if one.data[42] == Opcode.RC_ACKNOWLEDGE)
OVER_IPV4 = frames("generated/roce_v2_ipv4.pcap")[21]
OVER_IPV6 = next(
    one
    for one in frames("generated/roce_v2_ipv6.pcap")
    if one.data[20] == 17 and one.data[62] == Opcode.RC_RDMA_WRITE_ONLY
)
EXTENDED = next(
    one for one in frames("golden/carried_ethernet.pcap") if one.data[12:21:8] == b"\x86\0"
)
MANAGEMENT = frames("generated/management.pcap")
END = len(WRITE.data)

ZEROS = frames("linux/rxe61_ucmatose.pcap")[5]

HEALTHY = [
    *RC[:16],
    OVER_IPV6,
    *MANAGEMENT[66:68],
    of(ZEROS, Mutation("write", offset=209, data=b"\xff")),
    of(ZEROS, number("bth", "opcode", Opcode.RC_SEND_LAST_WITH_INVALIDATE)),
    of(
        frames("generated/roce_v1.pcap")[12],
        Mutation("repeat", "grh"),
        number("bth", "opcode", Opcode.RC_SEND_LAST_WITH_INVALIDATE),
    ),
]
"""Frames without a difference besides those of :data:`KNOWN_DIFFERENCES`."""

MUTANTS: dict[str, Sequence[SeedFrame]] = {
    "numbers of conversations": [
        of(WRITE, number("udp", "length", 0), number("udp", "dstport", 4000)),
        of(WRITE, number("udp", "srcport", 50001)),
    ],
    "packets to queue pair 0 or 1 that are not datagrams": [
        of(MANAGEMENT[69], number("bth", "opcode", Opcode.UC_SEND_ONLY)),
    ],
    "fragments of IPv4": [
        of(WRITE, Mutation("truncate", offset=58), number("ip", "mf", 1)),
        of(WRITE, Mutation("remove", offset=34, value=24), number("ip", "fragment_offset", 3)),
    ],
    "an IPv4 header with length 0": [of(WRITE, number("ip", "total_length", 0))],
    "packets that end before the frame, by the length of UDP or of a GRH": [
        of(
            WRITE,
            Mutation("extend", offset=END, data=bytes(4), lengths=False),
            number("ip", "total_length", END + 4 - 14),
        ),
    ],
    "payloads that begin with 0xCAFE": [
        of(IMMEDIATE, Mutation("extend", offset=58, data=b"\xca\xfe\0\0")),
    ],
    "management datagrams of another base version": [
        of(MANAGEMENT[115], number("mad", "base_version", 2)),
    ],
    "datagrams from queue pair 0 or 1 to another one": [
        of(MANAGEMENT[115], number("bth", "destqp", 5)),
    ],
    "UDP from port 4791 to another port": [
        of(WRITE, number("udp", "srcport", 4791), number("udp", "dstport", 50000)),
    ],
    "RoCEv2 from a UDP port of another protocol, below 4791": [
        of(WRITE, number("udp", "srcport", 67)),
    ],
    "texts with bytes that are not printable ASCII": [
        of(MANAGEMENT[0], text("nodedescription", "node_string", b"caf\xc3\xa9 \xff\t")),
    ],
    "notices of vendors": [of(MANAGEMENT[33], number("notice", "is_generic", 0))],
    "InformInfo whose IsGeneric is neither 0 nor 1": [
        of(MANAGEMENT[67], number("informinfo", "is_generic", 2)),
    ],
    "RMPP headers of a type above 4": [of(MANAGEMENT[71], number("rmpp", "type", 9))],
    "RMPP headers of type ACK, STOP or ABORT without the Active flag": [
        of(MANAGEMENT[71], number("rmpp", "type", 3)),
    ],
    "records in RMPP transfers": [
        of(MANAGEMENT[71], number("rmpp", "active", 1)),
    ],
}
"""Frames that differ in what a row of :data:`MUTANT_DIFFERENCES` allows alone, by its words."""

MALFORMED: dict[str, Sequence[SeedFrame]] = {
    "a length of IP, UDP or a GRH beyond the end of the frame": [
        of(WRITE, number("udp", "length", 100)),
    ],
    "a length of IP, or of UDP around another frame, beyond the end of the frame": [
        of(OVER_IPV4, number("ip", "total_length", 400)),
        of(frames("generated/vxlan.pcap")[3], number("udp", "length", 0x72)),
    ],
    "a length of UDP below 8": [of(WRITE, number("udp", "length", 0))],
    "a length of IPv4 below that of its header": [of(WRITE, number("ip", "total_length", 1))],
    "IPv4 by the EtherType, with version 6": [
        of(OVER_IPV6, Mutation("write", offset=12, data=b"\x08\0")),
    ],
    "an IPv6 header with payload length 0": [of(OVER_IPV6, number("ipv6", "payload_length", 0))],
    "IPv6 options of which one exceeds its header": [
        of(EXTENDED, Mutation("write", offset=57, data=b"\xff")),
    ],
    "headers that do not fit before the ICRC": [of(WRITE, Mutation("truncate", offset=72))],
    "management datagrams that are too short": [
        of(MANAGEMENT[28], Mutation("truncate", offset=138)),
    ],
    "a payload after an opcode that has none, or another size": [
        of(ACKNOWLEDGE, Mutation("repeat", "aeth")),
    ],
    "a payload whose size is not a multiple of four": [
        of(MANAGEMENT[2], Mutation("extend", offset=322, data=bytes(3))),
    ],
}
"""Frames for each row of :data:`MALFORMED_DIFFERENCES`, by its words."""

CASES = {"": HEALTHY, **MUTANTS, **MALFORMED}


@cache
def recorded() -> dict[tuple[bytes, ...], bytes]:
    """The recorded documents, by the frames of their captures."""
    documents = gzip.decompress(RECORDED.read_bytes()).split(_END)[:-1]
    pairs = zip(CASES.values(), documents, strict=True)
    return {tuple(one.data for one in case): document for case, document in pairs}


def recorded_values(path: Path, infos: Sequence[FieldInfo]) -> Iterator[Values]:
    """A reader of captures of :data:`CASES`: it shows what was recorded."""
    with open_capture(path) as reader:
        document = recorded()[tuple(record.data for record in reader)]
    return pdml_values(split_packets(iter([document])), infos)


def _record() -> Iterator[bytes]:
    for case in CASES.values():
        with tempfile.TemporaryDirectory() as folder:
            path = write_frames(Path(folder), case)
            yield b"\n".join(pdml_packets(path)) + b"\n" + _END


if __name__ == "__main__":
    RECORDED.write_bytes(gzip.compress(b"".join(_record()), mtime=0))
