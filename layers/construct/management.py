"""Management datagrams."""

from rdmawire.layers.construct.layout import Pieces
from rdmawire.wire import mad
from rdmawire.wire.tables import tables_of

_MODULES = (
    *("management", "mad", "rmpp", "smp", "node_info", "port_info", "forwarding", "notice"),
    *("sa", "sa_record", "perf", "cm", "cm_request", "ip_cm"),
)

ManagementDatagram = "ManagementDatagram" / Pieces(
    mad.layout, *(table for module in _MODULES for table in tables_of(module))
)
"""A management datagram: the common header, and what its class and attribute put behind it."""
