"""iWARP: what each direction of a TCP connection carries."""

from collections import Counter
from dataclasses import dataclass, field

from rdmawire.stats.facts import Facts, Fpdu, Way

WAYS = 1 << 14
"""Directions that are told apart; what comes later is counted as one."""
REST = Way("other", 0, "other", 0)
_SAYINGS = 64
"""Different Terminates of a direction that are told apart."""


@dataclass(slots=True)
class Stream:
    """One direction of a connection.

    ``frames`` and ``octets`` are those with octets of iWARP in them, as on the wire;
    ``fpdu_octets`` counts FPDUs from length to CRC, without Markers; ``crc`` is by state.
    """

    frames: int = 0
    octets: int = 0
    fpdus: int = 0
    fpdu_octets: int = 0
    payload: int = 0
    first_ns: int = 0
    last_ns: int = 0
    opcodes: Counter[int] = field(default_factory=Counter)
    crc: Counter[str] = field(default_factory=Counter)
    terminates: Counter[str] = field(default_factory=Counter)

    def add(self, fpdu: Fpdu) -> None:
        """Count an FPDU."""
        self.fpdus += 1
        self.fpdu_octets += fpdu.octets
        self.payload += fpdu.payload
        self.opcodes[fpdu.opcode] += 1
        self.crc[fpdu.crc] += 1
        if fpdu.terminate:
            known = fpdu.terminate in self.terminates or len(self.terminates) < _SAYINGS
            self.terminates[fpdu.terminate if known else "other"] += 1


class Streams:
    """All directions."""

    def __init__(self) -> None:
        self.streams: dict[Way, Stream] = {}
        self.frames = 0
        self.octets = 0

    def add(self, facts: Facts, octets: int, time_ns: int) -> int:
        """Count a frame; the octets of payload that its FPDUs bring."""
        stream = self._of(facts.way or REST, time_ns)
        for count in (self, stream):
            count.frames += 1
            count.octets += octets
        stream.last_ns = time_ns
        for fpdu in facts.fpdus:
            stream.add(fpdu)
        return sum(fpdu.payload for fpdu in facts.fpdus)

    def _of(self, way: Way, time_ns: int) -> Stream:
        if way not in self.streams and len(self.streams) >= WAYS:
            way = REST
        return self.streams.setdefault(way, Stream(first_ns=time_ns))
