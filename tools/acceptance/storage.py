"""Storage: fio's engine rdma, and iSER between tgt and libiscsi."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from tools.acceptance.case import Case, Package

FIO: Final = Package("fio", "fio")
ISER: Final = Package("iSER: tgt, libiscsi", "tgt libiscsi-bin qemu-utils qemu-block-extra")
_TARGET: Final = Path(__file__).with_name("iser_target.py")
_PORT: Final = 18900
_DEPTH: Final = 4
_BLOCK: Final = 65536
_MANY: Final = f"--iodepth={_DEPTH}"
_MEMORY: Final = 1 << 20
"""Bytes of a file that is the memory of fio's buffers; it uses the first ``_DEPTH`` blocks."""
_PATTERN: Final = "0x030711131d25292b"
_SHOWN: Final = re.compile(" --(?:mem|iodepth)=")
"""The page shows the options before these."""
_SAME: Final = f"cmp -n {_DEPTH * _BLOCK} server.mem client.mem && echo the same bytes"
_FILES: Final = f"truncate -s {_MEMORY} server.mem client.mem"
_RANDOM: Final = (
    f"head -c {_BLOCK} /dev/urandom > block; cat block block block block > server.mem;"
    f" truncate -s {_MEMORY} server.mem client.mem"
)


def fio(verb: str, client: str, server: str, prepare: str, check: str) -> Case:
    """Return a run of fio; ``check`` is a command that compares memories after the client's end."""
    shared = f"--ioengine=rdma --port={_PORT} --bs={_BLOCK}"
    # The server needs a size, and does not read or write that much itself.
    target = f"fio {shared} --name=server --rw=read --size=4m {server}"
    initiator = (
        f"fio {shared} --name=client --hostname={{address}} --bindname={{own_address}}"
        f" --verb={verb} --size=4m {client}"
    )
    return Case(
        FIO,
        f"fio --ioengine=rdma --verb={verb} {_SHOWN.split(client)[0]}",
        f'sh -c "{initiator} && {check}"',
        target,
        prepare=f'sh -c "{prepare}"',
        transport="RC",
        expect="the same bytes|err= 0",
        ready="waiting for connection",
    )


def _iser(mode: str, options: str) -> Case:
    return Case(
        ISER,
        options,
        f"{{python}} {_TARGET} {mode} {{address}} {{folder}}",
        transport="RC",
        expect="all right",
        limit=150,
    )


def cases() -> Iterator[Case]:
    """Yield all runs."""
    write = fio(
        "write",
        f"--rw=write --buffer_pattern={_PATTERN} --mem=mmapshared:client.mem {_MANY}",
        f"--mem=mmapshared:server.mem {_MANY}",
        _FILES,
        _SAME,
    )
    yield write
    yield fio(
        "read",
        f"--rw=write --mem=mmapshared:client.mem {_MANY}",
        f"--mem=mmapshared:server.mem {_MANY}",
        _RANDOM,
        _SAME,
    )
    # fio asks for no retries after RNR NAKs: a receive is posted for each message in advance.
    receives = f"--verify=crc32c --iodepth={(4 << 20) // _BLOCK}"
    sends = f"--rw=write --verify=crc32c --do_verify=0 {_MANY}"
    send = fio("send", sends, receives, "true", "true")
    yield send
    yield replace(write, network="loss=0.001,seed=1")
    yield replace(send, joined=True)
    yield _iser("data", "qemu-io and qemu-img, 16 MiB in requests of 256 KiB")
    yield _iser("tests", "iscsi-perf, iscsi-test-cu")
