"""The wire tables as structs of Construct: every header by its name, and complete packets.

>>> from rdmawire.layers.construct import BTH
>>> BTH.build({"opcode": "RC_SEND_ONLY", "destqp": 17, "psn": 5}).hex()
'0400ffff0000001100000005'
>>> BTH.parse(bytes.fromhex("0400ffff0000001100000005")).psn
5

Construct is an extra: ``pip install "rdmawire[construct]"``.
"""

from typing import TYPE_CHECKING, Any

try:
    import construct as _library  # noqa: F401 - only to say what is missing
except ModuleNotFoundError as error:
    if error.name != "construct":
        raise
    raise ImportError(
        'rdmawire.layers.construct needs Construct: pip install "rdmawire[construct]"',
        name="construct",
    ) from None

from rdmawire.layers.construct.frame import (
    ManagementDatagram,
    NativePacket,
    RoCEFrame,
    TransportPacket,
)
from rdmawire.layers.construct.header import struct
from rdmawire.layers.construct.iwarp import FPDU, Segment, StartUpReply, StartUpRequest
from rdmawire.wire.tables import tables as _tables

globals().update({table.__name__: struct(table) for table in _tables()})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return a header table's struct, by the table's name."""


__all__ = [  # noqa: PLE0604 - the names of tables are text
    "FPDU",
    "ManagementDatagram",
    "NativePacket",
    "RoCEFrame",
    "Segment",
    "StartUpReply",
    "StartUpRequest",
    "TransportPacket",
    "struct",
    *(table.__name__ for table in _tables()),
]
