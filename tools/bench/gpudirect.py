"""Traffic of GPUs: rings in packets and as flows, and transfers."""

import time

import click

from rdmawire import open_host
from rdmawire.fabric import Cable
from rdmawire.gpudirect import Collective, CollectiveRun, CollectiveSpec, flow_run
from rdmawire.gpudirect.transfer import TransferPath, TransferSpec, transfer
from rdmawire.units import gbps, us

_CABLE = Cable(latency=us(1), rate=gbps(400))
_MIB = 1 << 20


def measure() -> None:
    """Print how long they take."""
    ring = CollectiveSpec(Collective.ALL_REDUCE, 8, 8, 64 * _MIB)
    start = time.perf_counter()
    CollectiveRun(ring, _CABLE).run()
    _show("all-reduce of 64 MiB by 64 GPUs, in packets", start)
    start = time.perf_counter()
    flow_run(CollectiveSpec(Collective.ALL_REDUCE, 128, 8, 1024 * _MIB), _CABLE)
    _show("all-reduce of 1 GiB by 1,024 GPUs, as flows", start)
    machine = open_host("dgx-h200").machine
    for path in (TransferPath.DIRECT, TransferPath.TCP):
        start = time.perf_counter()
        transfer(TransferSpec(machine, "GPU0", "GPU1", path, 64 * _MIB))
        _show(f"transfer of 64 MiB, {path.value}", start)


def _show(what: str, start: float) -> None:
    click.echo(f"{what}: {time.perf_counter() - start:.2f} s")
