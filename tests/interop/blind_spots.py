"""Where tshark 4.0.17 is blind or wrong: the only differences that the comparison allows.

Each row names fields, says in which frames, and why. A row that no capture needs any more is
an error, so the table shrinks when tshark learns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rdmawire.analysis.node import Dissection
from rdmawire.wire import ib
from rdmawire.wire.header import Header
from rdmawire.wire.opcode import SHAPES, Opcode, Operation, Service, is_vendor

Applies = Callable[[Dissection], bool]


@dataclass(frozen=True, slots=True)
class BlindSpot:
    """Fields (as patterns) that may differ in the frames to which it applies."""

    fields: tuple[str, ...]
    where: str
    reason: str
    applies: Applies

    def covers(self, name: str, frame: Dissection) -> bool:
        """Whether this row allows a difference in that field of that frame."""
        return any(fnmatchcase(name, field) for field in self.fields) and self.applies(frame)


def header(frame: Dissection, kind: type[Header]) -> Header | None:
    """The first header of this kind in the frame."""
    return next((found for found in frame.headers() if type(found) is kind), None)


def opcode(frame: Dissection) -> int:
    """The BTH's opcode; -1 without a BTH."""
    bth = header(frame, ib.BTH)
    return bth.opcode if isinstance(bth, ib.BTH) else -1


def of_service(service: Service) -> Applies:
    return lambda frame: opcode(frame) >= 0 and opcode(frame) >> 5 == service


def of_operation(*operations: Operation) -> Applies:
    return lambda frame: opcode(frame) in SHAPES and opcode(frame) & 31 in operations


def everywhere(_: Dissection) -> bool:
    return True


BLIND_SPOTS = (
    BlindSpot(
        ("infiniband.*", "data.*"),
        "packets of service RD (opcodes 0x40 to 0x5D)",
        "read as Mellanox's dynamically connected transport, with its header behind the BTH",
        of_service(Service.RD),
    ),
    BlindSpot(
        ("infiniband.*", "data.*"),
        "packets of service XRC (opcodes 0xA0 to 0xBD)",
        "no header sequence is known: everything behind the BTH is a vendor's, the ICRC too",
        of_service(Service.XRC),
    ),
    BlindSpot(
        ("infiniband.reth*", "infiniband.vendor", "infiniband.invariant.crc", "data.*"),
        "FLUSH and ATOMIC WRITE",
        "opcodes 0x1C and 0x1D are not known",
        of_operation(Operation.FLUSH, Operation.ATOMIC_WRITE),
    ),
    BlindSpot(
        ("infiniband.vendor", "infiniband.invariant.crc"),
        "CNP (opcode 0x81)",
        "not known: its reserved octets and its ICRC are read as a vendor's",
        lambda frame: opcode(frame) == Opcode.CNP,
    ),
    BlindSpot(
        ("infiniband.vendor", "infiniband.invariant.crc"),
        "vendors' opcodes",
        "the ICRC is taken for the vendor's octets",
        lambda frame: is_vendor(opcode(frame)),
    ),
)
