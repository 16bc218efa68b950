"""What ``scapy.contrib.roce`` calls otherwise than the header tables do."""

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
"""By table, as Scapy's ``deprecated_fields``: its name, the table's, and since when."""

WORDS = {"RC_COMPARE_SWAP": "RC_CMP_SWAP", "RD_COMPARE_SWAP": "RD_CMP_SWAP"}
"""Its opcodes, and the table's."""
