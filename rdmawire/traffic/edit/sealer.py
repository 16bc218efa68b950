"""How the checksums of edited octets are made to fit, as it is asked for."""

from collections.abc import Iterable, Mapping, Sequence

from rdmawire.traffic.edit.rule import Rule
from rdmawire.traffic.edit.seal import InvariantCRC, Seal, Sealing
from rdmawire.traffic.edit.tally import Tally
from rdmawire.wire.header import Header


class Sealer:
    """Seals what was edited, and counts what was found; ``plain`` if nothing special is asked."""

    def __init__(self, sealing: Sealing, rules: Sequence[Rule], tally: Tally) -> None:
        self.sealing = sealing
        self._tally = tally
        self._overrides: Mapping[type[Header], int] = {
            table: value for rule in rules for table, value in rule.overrides().items()
        }
        self.plain = sealing is Sealing.CHANGED and not self._overrides

    def seal(
        self, seals: Iterable[tuple[Seal, int]], old: bytes, new: bytearray, reach: int
    ) -> None:
        """Make checksums fit, each of which covers what ends at an octet.

        No octet from ``reach`` on has changed, but for checksums.
        """
        for seal, end in seals:
            self._tally.cut += isinstance(seal, InvariantCRC) and end > len(old)
            if self.sealing is not Sealing.NONE and seal.keep(old, new, reach, end) is False:
                self._tally.bad += 1
            if self.sealing is Sealing.ALL:
                seal.renew(new, end)
            if seal.table in self._overrides:
                seal.put(new, self._overrides[seal.table], end)
