"""The VLAN tag that frames carry, as it is asked for: ``VID``, or ``VID:PCP``."""

from typing import Final, NamedTuple, Self

from rdmawire.screen import quoted
from rdmawire.traffic.generate.quantity import OrderError

LAST_VLAN: Final = 4094
LAST_PCP: Final = 7


class Tag(NamedTuple):
    """A VLAN, and the priority code point of all frames (IEEE 802.1Q, 6.9.3).

    ``None`` is the class that the DSCP of each selects.
    """

    vlan: int
    pcp: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``100``, or ``100:3``; :class:`OrderError` for anything else."""
        vlan, colon, pcp = text.strip().partition(":")
        try:
            found = cls(int(vlan, 0), int(pcp, 0) if colon else None)
        except ValueError:
            raise OrderError(f"{quoted(text)} is no VID or VID:PCP such as 100 or 100:3") from None
        if found.vlan not in range(LAST_VLAN + 1):
            raise OrderError(f"{quoted(text)}: a VLAN is within 0..{LAST_VLAN}")
        if found.pcp is not None and found.pcp not in range(LAST_PCP + 1):
            raise OrderError(f"{quoted(text)}: a priority is within 0..{LAST_PCP}")
        return found
