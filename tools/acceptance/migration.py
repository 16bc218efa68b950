"""QEMU: live migration over RDMA of a guest that writes to its memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.acceptance.case import Case, Package

QEMU: Final = Package("QEMU", "qemu-system-x86")
_DRIVER: Final = Path(__file__).with_name("qemu_migration.py")
_PORT: Final = 18950


def cases() -> Iterator[Case]:
    """Yield all runs."""
    for options in ("", " rdma-pin-all"):
        yield Case(
            QEMU,
            f"migrate rdma:ADDRESS:PORT{options}",
            f"{{python}} {_DRIVER} {{address}} {_PORT} {{folder}}{options}",
            transport="RC",
            expect="completed, memory is equal, the guest goes on",
            limit=120,
        )
