"""Captures edited: by the command and by the library, beside Scapy that does the same."""

import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from rdmawire.capture import open_capture
from rdmawire.traffic.edit import Editor, edit_capture, text
from tools.bench import peer
from tools.bench.editing import ADDRESSES, MACS, PSN, QPNS
from tools.bench.rate import Figure, best_rate

_SCAPY = "Scapy, the same edit"


def _maps(table: dict[str, str] | dict[int, int]) -> list[str]:
    return [f"{old}={new}" for old, new in table.items()]


def editor() -> Editor:
    """What makes the edit."""
    maps = [text.macs(_maps(MACS)), text.ips(_maps(ADDRESSES)), text.qpns(_maps(QPNS))]
    return Editor([*maps, text.psn_offsets([str(PSN)])])


def _library(path: Path, copy: Path) -> int:
    one = editor()
    edit_capture(path, copy, one)
    return one.counts.frames


def _command(path: Path, copy: Path, frames: int) -> int:
    words = [word for old_new in _maps(MACS) for word in ("--mac", old_new)]
    words += [word for old_new in _maps(ADDRESSES) for word in ("--ip", old_new)]
    words += [word for old_new in _maps(QPNS) for word in ("--qpn", old_new)]
    words += ["--psn-offset", str(PSN), "-q", "-w", str(copy), str(path)]
    subprocess.run((peer.RDMAWIRE, "edit", *words), check=True)
    return frames


def measure(name: str, path: Path, frames: int, peer_frames: int) -> Iterator[Figure]:
    """All figures for one capture of so many frames, printed as they come."""
    theirs, ours = path.with_suffix(".theirs.pcap"), path.with_suffix(".ours.pcap")
    rival = peer.scapy_edits(path, peer_frames, theirs)
    yield Figure(f"{name}: {_SCAPY}", rival).shown()
    volume = path.stat().st_size / frames / 1e9
    for label, count in (
        ("edit_capture", partial(_library, path, ours)),
        ("rdmawire edit", partial(_command, path, ours, frames)),
    ):
        rate = best_rate(count)
        yield Figure(f"{name}: {label}", rate, rate / rival, _SCAPY, rate * volume).shown()
    _check(theirs, ours)


def _check(theirs: Path, ours: Path) -> None:
    """Both must have written the same frames."""
    with open_capture(theirs) as one, open_capture(ours) as other:
        for expected, found in zip(one, other, strict=False):
            assert found.data == expected.data, "Scapy's frame is another one"
