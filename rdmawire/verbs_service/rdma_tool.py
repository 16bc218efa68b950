"""A stand-in for rdma(8) of iproute2, which asks the kernel: it lists the devices of a service.

Scripts, and rdma-core's tests since version 46, find devices and their network interfaces by
``rdma link show -j``. The stand-in is a shell script and the texts that it prints, so that a
container with its folder needs nothing else.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rdmawire.verbs_service.device import EmulatedDevice
from rdmawire.verbs_service.sysfs import FIRMWARE, INTERFACE, guid_text

_SCRIPT: Final = """\
#!/bin/sh
# rdma(8) for emulated devices.
kind= form=text
for word; do
    case $word in
        -j | --json | -jp | -pj) form=json ;;
        -p | --pretty | -d | --details | show | list) ;;
        dev | link) [ -z "$kind" ] && kind=$word || kind=other ;;
        *) kind=other ;;
    esac
done
case $kind in
    dev | link) exec cat "${0%/*}/../share/$kind.$form" ;;
esac
echo "rdma: emulated devices have \\`rdma dev show\\` and \\`rdma link show\\`, with -j" >&2
exit 1
"""
_LOOPBACK_INDEX: Final = 1
"""The index of ``lo``, the first interface of each network namespace."""


def write_rdma(folder: Path, devices: Sequence[EmulatedDevice]) -> None:
    """Write ``bin/rdma`` and what it prints to ``folder``, which exists."""
    texts = {
        "dev": ([_dev(index, one) for index, one in enumerate(devices)], _dev_line),
        "link": ([_link(index, one) for index, one in enumerate(devices)], _link_line),
    }
    (folder / "share").mkdir()
    for name, (rows, line) in texts.items():
        (folder / "share" / f"{name}.json").write_text(f"{json.dumps(rows)}\n")
        (folder / "share" / f"{name}.text").write_text("".join(f"{line(row)}\n" for row in rows))
    (folder / "bin").mkdir()
    script = folder / "bin/rdma"
    script.write_text(_SCRIPT)
    script.chmod(0o755)


def _dev(index: int, device: EmulatedDevice) -> dict[str, Any]:
    guid = guid_text(device)
    return {
        "ifindex": index,
        "ifname": device.name,
        "node_type": "ca",
        "fw": FIRMWARE,
        "node_guid": guid,
        "sys_image_guid": guid,
    }


def _dev_line(row: dict[str, Any]) -> str:
    return (
        f"{row['ifindex']}: {row['ifname']}: node_type {row['node_type']} fw {row['fw']}"
        f" node_guid {row['node_guid']} sys_image_guid {row['sys_image_guid']}"
    )


def _link(index: int, device: EmulatedDevice) -> dict[str, Any]:
    return {
        "ifindex": index,
        "ifname": device.name,
        "port": 1,
        "state": "ACTIVE",
        "physical_state": "LINK_UP",
        "netdev": INTERFACE,
        "netdev_index": _LOOPBACK_INDEX,
    }


def _link_line(row: dict[str, Any]) -> str:
    return (
        f"link {row['ifname']}/{row['port']} state {row['state']}"
        f" physical_state {row['physical_state']} netdev {row['netdev']}"
    )
