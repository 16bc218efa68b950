"""PCI Express links: their rate, and what of it remains for data."""

from typing import Final, NamedTuple

from rdmawire.errors import TopologyError

GIGABYTE: Final = 1e9

_LANE_RATES: Final = {
    1: 2.5e9 / 8 * 8 / 10,
    2: 5e9 / 8 * 8 / 10,
    3: 8e9 / 8 * 128 / 130,
    4: 16e9 / 8 * 128 / 130,
    5: 32e9 / 8 * 128 / 130,
    6: 64e9 / 8 * 236 / 256,
}
"""Bytes of TLPs and DLLPs per second and lane, by generation: PCIe Base 6.0, 4.2 and 4.2.3.

The first two generations use 8b/10b, the next three 128b/130b; of a flit of the sixth, 236 of 256
bytes are for TLPs.
"""
GENERATIONS: Final = tuple(_LANE_RATES)
WIDTHS: Final = (1, 2, 4, 8, 12, 16, 32)

_TRANSFERS: Final = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""Generations by GT/s, as Linux writes the speed of a link."""

TLP_OVERHEAD: Final = 24
"""Bytes of a TLP beside its data: header with a 64-bit address 16, framing 4, LCRC 4."""


class PcieLink(NamedTuple):
    """A link: its generation, and its width in lanes."""

    generation: int
    width: int

    @property
    def rate(self) -> float:
        """Bytes per second in each direction, TLP headers included."""
        return _LANE_RATES[self.generation] * self.width

    def data_rate(self, max_payload: int = 256) -> float:
        """Bytes of data per second, in writes or completions of ``max_payload`` bytes (MPS)."""
        return self.rate * max_payload / (max_payload + TLP_OVERHEAD)

    def __str__(self) -> str:
        return f"Gen{self.generation} x{self.width}"


def generation_of(transfers: float) -> int:
    """Return the generation of a link by its GT/s; :class:`TopologyError` for none."""
    generation = _TRANSFERS.get(transfers)
    if generation is None:
        known = ", ".join(f"{rate:g}" for rate in _TRANSFERS)
        raise TopologyError(f"a PCIe link of {transfers:g} GT/s; known are {known}")
    return generation
