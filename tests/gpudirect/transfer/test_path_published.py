"""Times and rates of transfers beside published ranges; what is outside of them has a name."""

from typing import NamedTuple

import pytest

from rdmawire.gpudirect.transfer import LinkLayer, TransferPath, TransferSpec, transfer
from rdmawire.topology import Machine
from rdmawire.traffic.scenario.topology_file import open_host
from rdmawire.units import gbps

DGX: Machine = open_host("dgx-h200").machine
ETHERNET, INFINIBAND = LinkLayer
MIB = 1 << 20


class Published(NamedTuple):
    """A published range: of the time (us) of 8 bytes, or of the rate (Gbit/s) at 100 Gbit/s.

    ``above`` is the share by which the model is above the range, if it is.
    """

    path: str
    layer: LinkLayer
    least: float
    most: float
    mtu: int = 4096
    above: float = 0.0


LATENCIES = [
    Published("tcp", ETHERNET, 50, 100),
    Published("bounce", ETHERNET, 10, 20),
    Published("bounce", INFINIBAND, 10, 20),
    Published("direct", ETHERNET, 2, 5),
    Published("direct", INFINIBAND, 2, 5),
    Published("host", INFINIBAND, 0.5, 2),
]
RATES = [
    Published("tcp", ETHERNET, 60, 70),
    Published("host", ETHERNET, 90, 95, 1024),
    Published("direct", ETHERNET, 90, 95, 1024),
    Published("direct", ETHERNET, 90, 95, 4096, above=0.03),  # headers are all that is lost
    Published("host", INFINIBAND, 95, 98),
    Published("direct", INFINIBAND, 95, 98),
    Published("direct", INFINIBAND, 95, 98, 1024),
]


@pytest.mark.parametrize("row", LATENCIES)
def test_the_time_of_8_bytes_is_in_the_published_range(row: Published) -> None:
    spec = TransferSpec(DGX, "GPU0", "GPU1", TransferPath(row.path), 8, layer=row.layer)
    assert row.least <= transfer(spec).duration / 1000 <= row.most


@pytest.mark.parametrize("row", RATES)
def test_the_rate_at_100_gbit_is_in_the_published_range(row: Published) -> None:
    path = TransferPath(row.path)
    size = (32 if path is TransferPath.TCP else 6) * MIB
    spec = TransferSpec(
        DGX, "GPU0", "GPU1", path, size, rate=gbps(100), mtu=row.mtu, layer=row.layer
    )
    found = transfer(spec).rate * 8 / 1e9
    assert row.least <= found <= row.most * (1 + row.above)
    assert (found > row.most) == (row.above > 0)
