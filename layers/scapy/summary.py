"""What a packet's summary says of its headers, in the notation of Scapy's ``sprintf``."""

from rdmawire.wire import ib, mad, mpa
from rdmawire.wire.ddp import TaggedHeader, UntaggedHeader
from rdmawire.wire.header import Header
from rdmawire.wire.rdmap import RDMAPControl, RDMAPControlInvalidate, RDMAPControlReserved

_OPCODE = "RDMAP %opcode%"

SUMMARIES: dict[type[Header], str] = {
    ib.LRH: "LRH %slid% > %dlid%",
    ib.GRH: "GRH %sgid% > %dgid%",
    ib.BTH: "BTH %opcode% qp %destqp% psn %psn%",
    ib.RETH: "RETH va %va% rkey %rkey% dmalen %dmalen%",
    ib.AETH: "AETH %ack% %value% msn %msn%",
    ib.DETH: "DETH srcqp %srcqp%",
    mad.MAD: "MAD class %mgmt_class% %method% %attribute_id%",
    mpa.FPDULength: "FPDU %ulpdu_length% bytes",
    RDMAPControl: _OPCODE,
    RDMAPControlReserved: _OPCODE,
    RDMAPControlInvalidate: _OPCODE,
    TaggedHeader: "stag %stag% offset %to%",
    UntaggedHeader: "queue %qn% msn %msn% offset %mo%",
}
