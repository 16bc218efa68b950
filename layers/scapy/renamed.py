"""Names in ``scapy.contrib.roce`` that differ from those of the header tables."""

from rdmawire.wire import ib
from rdmawire.wire.header import Header

_SINCE = "rdmawire 0.1"

FIELDS: dict[type[Header], dict[str, tuple[str, str]]] = {
    ib.BTH: {
        "dqpn": ("destqp", _SINCE),
        "padcount": ("padcnt", _SINCE),
        "solicited": ("se", _SINCE),
        "version": ("tver", _SINCE),
    },
    ib.GRH: {"nexthdr": ("nxthdr", _SINCE)},
}
"""By table, in the form of Scapy's ``deprecated_fields``: Scapy's name to ours and a version."""

WORDS = {"RC_COMPARE_SWAP": "RC_CMP_SWAP", "RD_COMPARE_SWAP": "RD_CMP_SWAP"}
"""Scapy's names of opcodes to ours."""
