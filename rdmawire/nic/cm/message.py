"""Connection management datagrams, read: what a peer says, and from where."""

from typing import NamedTuple

from rdmawire.errors import WireError
from rdmawire.nic.address import AddressHandle
from rdmawire.nic.cm.gsi import Datagram
from rdmawire.wire import cm, mad
from rdmawire.wire.cm_request import (
    REQ,
    SIDRREQ,
    AlternatePath,
    PrimaryPath,
    PrimaryPathIPv4,
    REQConsumerData,
    REQPrivateData,
    SIDRREQConsumerData,
    SIDRREQPrivateData,
)
from rdmawire.wire.header import Header
from rdmawire.wire.ip_cm import IPCM4, IPCM6
from rdmawire.wire.layout import Piece
from rdmawire.wire.mad import MAD
from rdmawire.wire.management import ManagementClass, Method

CLASS_VERSION = 2
"""Of the communication management class. IBA 12.6.1."""

Message = (
    REQ
    | cm.MRA
    | cm.REJ
    | cm.REP
    | cm.RTU
    | cm.DREQ
    | cm.DREP
    | SIDRREQ
    | cm.SIDRREP
    | cm.LAP
    | cm.APR
)
_WITH_DATA = (REQPrivateData, REQConsumerData, SIDRREQPrivateData, SIDRREQConsumerData)
_NO_PATH = PrimaryPath()
_NO_ALTERNATE = AlternatePath()


class Heard(NamedTuple):
    """One message; ``rest`` is what follows the fixed part of a request.

    ``back`` and ``pkey_index`` are those of its datagram.
    """

    source: bytes
    destination: bytes
    mad: MAD
    message: Message
    rest: tuple[Piece, ...] = ()
    back: AddressHandle | None = None
    pkey_index: int = 0

    @property
    def tid(self) -> int:
        """The transaction that it belongs to."""
        return self.mad.transaction_id

    @property
    def ids(self) -> tuple[int, int]:
        """The communication ids of the receiver and of the sender; 0 for one that is not there."""
        message = self.message
        if isinstance(message, SIDRREQ):
            return 0, message.request_id
        if isinstance(message, cm.SIDRREP):
            return message.request_id, 0
        return getattr(message, "remote_comm_id", 0), message.local_comm_id

    @property
    def private_data(self) -> bytes:
        """The peer's own words, with the zeros behind them."""
        for piece in (self.message, *self.rest):
            if isinstance(piece, _WITH_DATA):
                return piece.private_data
        return getattr(self.message, "private_data", b"")

    @property
    def path(self) -> PrimaryPath:
        """The primary path of a REQ, its GIDs of 16 octets whatever their form."""
        for piece in self.rest:
            if isinstance(piece, PrimaryPath):
                return piece
            if isinstance(piece, PrimaryPathIPv4):
                return PrimaryPath.parse(piece.build())
        return _NO_PATH

    @property
    def has_alternate(self) -> bool:
        """Whether a REQ proposes a second path."""
        return any(isinstance(p, AlternatePath) and p != _NO_ALTERNATE for p in self.rest)

    @property
    def ip_header(self) -> IPCM4 | IPCM6 | None:
        """The IP header that a request's private data begin with."""
        return next((piece for piece in self.rest if isinstance(piece, IPCM4 | IPCM6)), None)


def read(datagram: Datagram) -> Heard | None:
    """The message in a datagram; ``None`` where there is none of this class."""
    try:
        (_, head), *placed = mad.layout(datagram.mad)
    except WireError:
        return None
    if not isinstance(head, MAD) or not _is_cm(head) or not placed:
        return None
    message, *rest = (piece for _, piece in placed)
    if not isinstance(message, Message):
        return None
    source, destination, _, back, pkey_index = datagram
    return Heard(source, destination, head, message, tuple(rest), back, pkey_index)


def _is_cm(head: MAD) -> bool:
    return head.mgmt_class == ManagementClass.COM_MGT and head.method == Method.SEND


def of(attribute: int, tid: int, *pieces: Header | bytes) -> bytes:
    """The 256 octets of a message."""
    head = MAD(
        mgmt_class=ManagementClass.COM_MGT,
        class_version=CLASS_VERSION,
        method=Method.SEND,
        transaction_id=tid,
        attribute_id=attribute,
    )
    return mad.build(head, *pieces)
