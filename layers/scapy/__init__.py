# SPDX-License-Identifier: GPL-2.0-only
"""The wire tables as layers of Scapy: every header, bound from Ethernet down to the payload.

>>> from scapy.all import IP, UDP, Ether
>>> from rdmawire.layers.scapy import BTH, RETH
>>> packet = Ether() / IP() / UDP() / BTH(opcode="RC_RDMA_WRITE_ONLY", destqp=17) / RETH() / b"abc"

Omitted lengths, pad count and ICRC are computed. Ethernet, IP, UDP and TCP are
Scapy's own. Importing this binds UDP port 4791 and EtherType 0x8915, with precedence over
existing bindings, such as those of ``scapy.contrib.roce``; :func:`unbind` restores them.
:func:`bind` takes further ports, :func:`bind_iwarp` those of iWARP.

Scapy is an extra: ``pip install "rdmawire[scapy]"``.
"""

from typing import TYPE_CHECKING, Any

try:
    import scapy as _library  # noqa: F401 - only to say what is missing
except ModuleNotFoundError as error:
    if error.name != "scapy":
        raise
    raise ImportError(
        'rdmawire.layers.scapy needs Scapy: pip install "rdmawire[scapy]"', name="scapy"
    ) from None

from rdmawire.layers.scapy.binding import bind, bind_iwarp, unbind, unbind_iwarp
from rdmawire.layers.scapy.iwarp import MPA, IWARPSession
from rdmawire.layers.scapy.layer import Bytes, TableLayer, layers
from rdmawire.layers.scapy.transport import CNP_OPCODE, CNPPadding, cnp, opcode

_LAYERS = layers(without=("inet",))
globals().update(_LAYERS)
bind()

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return a header table's layer, by the table's name."""


__all__ = [  # noqa: PLE0604 - the names of tables are text
    "CNP_OPCODE",
    "MPA",
    "CNPPadding",
    "IWARPSession",
    "Bytes",
    "TableLayer",
    "bind",
    "bind_iwarp",
    "cnp",
    "opcode",
    "unbind",
    "unbind_iwarp",
    *_LAYERS,
]
