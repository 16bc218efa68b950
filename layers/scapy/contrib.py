# SPDX-License-Identifier: GPL-2.0-only
"""Names of ``scapy.contrib.roce`` that are no headers, so that scripts written for it work."""

from typing import Any

from rdmawire.layers.scapy.layer import TableLayer, define
from rdmawire.layers.scapy.renamed import WORDS
from rdmawire.layers.scapy.transport import BTH
from rdmawire.wire import ib
from rdmawire.wire.opcode import Opcode, Service

CNP_OPCODE = int(Opcode.CNP)

_HALVES = {"reserved1": slice(0, 8), "reserved2": slice(8, 16)}


def _half(name: str) -> property:
    """Eight of the reserved bytes of a CNP, as a number."""

    def put(pkt: Any, value: int) -> None:
        data = bytearray(pkt.resv128)
        data[_HALVES[name]] = value.to_bytes(8, "big")
        pkt.resv128 = bytes(data)

    return property(lambda pkt: int.from_bytes(pkt.resv128[_HALVES[name]], "big"), put)


class CongestionLayer(TableLayer):
    """The reserved bytes of a CNP, whole or as the two numbers that ``CNPPadding`` has."""

    reserved1 = _half("reserved1")
    reserved2 = _half("reserved2")

    def __init__(self, *args: Any, **fields: Any) -> None:
        halves = {name: fields.pop(name) for name in _HALVES if name in fields}
        super().__init__(*args, **fields)
        for name, value in halves.items():
            setattr(self, name, value)


CNPPadding = define(ib.CNP, CongestionLayer)


def cnp(dqpn: int) -> TableLayer:
    """A congestion notification packet to a queue pair: a BTH and its reserved bytes."""
    return BTH(opcode=CNP_OPCODE, becn=1, destqp=dqpn) / CNPPadding()


def opcode(transport: str, op: str) -> tuple[int, str]:
    """Number and name of an opcode: ``opcode("RC", "SEND_ONLY")``.

    As in ``scapy.contrib.roce``, any operation goes with any transport. ``KeyError`` for unknown
    words.
    """
    name = f"RC_{op}"
    number = Opcode[WORDS.get(name, name)]
    return Service[transport] << 5 | number, f"{transport}_{op}"
