"""Which queue pairs belong together, found from a capture as a whole before it is edited."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

import click

from rdmawire.errors import CaptureError
from rdmawire.traffic.edit.offset import QueuePair
from rdmawire.traffic.edit.place import host

_LID = "LID "


def peers_of(path: str, ports: Collection[int]) -> Mapping[QueuePair, QueuePair]:
    """For each queue pair that responses go to, the one that they come from."""
    if not Path(path).is_file():
        raise click.UsageError(
            "--psn-offset for one queue pair reads the capture twice, to find who answers whom:"
            " name a file"
        )
    try:
        from rdmawire.analysis.statistics import Statistics
        from rdmawire.analysis.statistics.concluding import report_of
    except ImportError as error:
        raise click.ClickException(str(error)) from None
    statistics = Statistics()
    with suppress(CaptureError):  # the edit itself says where the capture is damaged
        statistics.read(path, ports=ports)
    if not statistics.frames:
        return {}
    flows = report_of(statistics, [path]).flows
    paired = ((flow, flows[flow.back]) for flow in flows if flow.back is not None)
    return {
        QueuePair(_host(flow.destination), flow.qp): QueuePair(_host(back.destination), back.qp)
        for flow, back in paired
        if flow.qp is not None and back.qp is not None and flow.responses.frames
    }


def _host(text: str) -> bytes:
    """An address as statistics write it."""
    if text.startswith(_LID):
        return int(text.removeprefix(_LID)).to_bytes(2, "big")
    return host(ip_address(text).packed)
