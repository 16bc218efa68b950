"""Runs tgtd as a target of iSER, and libiscsi's programs as initiators.

``python iser_target.py data|tests ADDRESS FOLDER`` prints what came of it; the exit status is 1 if
a program fails, or if what was written, what the target's file has and what was read differ.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

_CONTROL: Final = "77"
"""Number of tgtd's socket for tgtadm."""
_NAME: Final = "iqn.2026-11.wire.rdma:disk"
_INITIATORS: Final = (
    "iqn.2008-11.org.linux-kvm",
    "iqn.2010-11.libiscsi:iscsi-perf",
    "iqn.2007-10.com.github:sahlberg:libiscsi:iscsi-test",
)
_SIZE: Final = 16 << 20
_REQUEST: Final = 256 << 10
"""Largest request of libiscsi 1.19 by iSER, in bytes."""
_TESTS: Final = (
    *("CompareAndWrite", "OrWrite", "Prefetch10", "Read6", "Read10.Simple"),
    *("Read10.BeyondEol", "Read10.ZeroBlocks", "Read12.Simple", "Read16.Simple"),
    *("ReadCapacity10", "ReadCapacity16", "TestUnitReady", "Verify10"),
    *("Write10.Simple", "Write12.Simple", "Write16.Simple", "WriteVerify10.Simple"),
)
"""Tests of iscsi-test-cu that pass with tgt."""
_SECONDS: Final = 60
_TRIES: Final = 200
_PAUSE: Final = 0.05


def _say(*words: str) -> str:
    """Run a command and return what it prints; ``RuntimeError`` if it fails."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_SECONDS)
    if done.returncode:
        raise RuntimeError(
            f"error: {words[0]}: status {done.returncode}: {done.stdout[-300:]}{done.stderr[-300:]}"
        )
    return done.stdout


def _admin(options: str) -> None:
    _say("tgtadm", "-C", _CONTROL, "--lld", "iser", *options.split())


def _wait_for_target(target: subprocess.Popen[bytes]) -> None:
    words = ("tgtadm", "-C", _CONTROL, "--mode", "system", "--op", "show")
    for _ in range(_TRIES):
        if target.poll() is not None:
            raise RuntimeError(f"error: tgtd ended with status {target.returncode}")
        if not subprocess.run(words, capture_output=True, check=False).returncode:
            return
        time.sleep(_PAUSE)
    raise RuntimeError("error: tgtd does not answer tgtadm")


@contextmanager
def target(disk: Path) -> Iterator[None]:
    """Serve a file as a logical unit, while a `with` block runs."""
    os.environ["TGT_IPC_SOCKET"] = str(disk.parent / "tgtd")
    with (disk.parent / "tgtd.log").open("wb") as log:
        daemon = subprocess.Popen(["tgtd", "-f", "-C", _CONTROL], stdout=log, stderr=log)
    try:
        _wait_for_target(daemon)
        _admin(f"--mode target --op new --tid 1 --targetname {_NAME}")
        _admin("--mode target --op bind --tid 1 --initiator-address ALL")
        for name in _INITIATORS:  # tgt 1.0.85 wants both an address and a name
            _admin(f"--mode target --op bind --tid 1 --initiator-name {name}")
        unit = f"--lun 1 --bstype rdwr --backing-store {disk}"
        _admin(f"--mode logicalunit --op new --tid 1 {unit}")
        yield
    finally:
        daemon.kill()
        daemon.wait()


def data(url: str, disk: Path) -> str:
    """Write the whole disk, and read it. ``RuntimeError`` if bytes differ."""
    written = Random(1).randbytes(_SIZE)
    words = ["qemu-io", "-f", "raw"]
    for start in range(0, _SIZE, _REQUEST):
        part = disk.with_name(f"part{start}")
        part.write_bytes(written[start : start + _REQUEST])
        words += ["-c", f"write -s {part} {start} {_REQUEST}"]
    _say(*words, url)
    if disk.read_bytes() != written:
        raise RuntimeError("error: the target's file differs from what was written")
    read = disk.with_name("read.img")
    _say("qemu-img", "dd", "-f", "raw", "-O", "raw", f"bs={_REQUEST}", f"if={url}", f"of={read}")
    if read.read_bytes() != written:
        raise RuntimeError("error: what was read differs from what was written")
    return f"{_SIZE >> 20} MiB written and read, all right"


def tests(url: str, _: Path) -> str:
    """Run iscsi-perf and tests of iscsi-test-cu. ``RuntimeError`` if one fails."""
    _say("iscsi-perf", "-t", "1", "-m", "2", url)
    for name in _TESTS:
        shown = _say("iscsi-test-cu", "-d", "-n", "-t", f"ALL.{name}", url)
        if not re.search(r"tests +[1-9]", shown):
            raise RuntimeError(f"error: iscsi-test-cu has no test {name}")
    return f"{len(_TESTS)} groups of tests, all right"


def main(mode: str, address: str, folder: str) -> int:
    """Run one mode. Return the exit status."""
    disk = Path(folder) / "disk.img"
    disk.write_bytes(bytes(_SIZE))
    try:
        with target(disk):
            print({"data": data, "tests": tests}[mode](f"iser://{address}/{_NAME}/1", disk))
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
