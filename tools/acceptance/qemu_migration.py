"""Migrates a running guest of QEMU over RDMA to a second QEMU, and compares the memories.

``python qemu_migration.py ADDRESS PORT FOLDER [CAPABILITY...]`` prints what came of it; the exit
status is 1 if the migration fails or if memory differs. The guest has no operating system: its BIOS
fills 64 KiB with a number that it increments, for ever, and 24 MiB of its memory are random.
"""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any, Final

_MEMORY: Final = 64 << 20
_LOADED_AT: Final = 16 << 20
_LOADED: Final = 24 << 20
_COUNTER: Final = 0x10000
_BIOS_SIZE: Final = 0x10000
_BIOS: Final = bytes.fromhex(
    "b80010"  # mov ax, 1000h
    "8ec0"  # mov es, ax: the memory at 10000h
    "31db"  # xor bx, bx
    "43"  # inc bx
    "89d8"  # mov ax, bx
    "31ff"  # xor di, di
    "b90080"  # mov cx, 8000h
    "f3ab"  # rep stosw
    "ebf4"  # jmp to inc bx
)
_RESET: Final = bytes.fromhex("ea000000f0")  # jmp f000h:0, 16 bytes before the end
_TRIES: Final = 600
_PAUSE: Final = 0.05


class Machine:
    """A QEMU with its monitor."""

    def __init__(self, folder: Path, name: str, *options: str) -> None:
        self._folder, self._name = folder, name
        monitor = folder / f"{name}.sock"
        self.process = subprocess.Popen(
            [
                *("qemu-system-x86_64", "-nodefaults", "-display", "none"),
                *("-machine", "pc", "-accel", "tcg"),
                *("-m", str(_MEMORY >> 20), "-bios", str(folder / "bios")),
                *("-qmp", f"unix:{monitor},server=on,wait=off", *options),
            ]
        )
        self._monitor = self._connected(monitor).makefile("rw")
        self._monitor.readline()
        self.ask("qmp_capabilities")

    def _connected(self, monitor: Path) -> socket.socket:
        end = socket.socket(socket.AF_UNIX)
        for _ in range(_TRIES):
            try:
                end.connect(str(monitor))
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(_PAUSE)
            else:
                return end
        raise RuntimeError(f"error: QEMU {self._name} did not start")

    def ask(self, command: str, **arguments: Any) -> Any:
        """Execute a command of QMP and return its result; ``RuntimeError`` if it is refused."""
        self._monitor.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self._monitor.flush()
        while answer := self._monitor.readline():
            reply = json.loads(answer)
            if "return" in reply:
                return reply["return"]
            if "error" in reply:
                raise RuntimeError(f"error: {self._name}: {command}: {reply['error']['desc']}")
        raise RuntimeError(f"error: {self._name}: QEMU ended at {command}")

    def memory(self, start: int = 0, size: int = _MEMORY) -> bytes:
        """Return physical memory of the guest."""
        file = self._folder / f"{self._name}.memory"
        self.ask("pmemsave", val=start, size=size, filename=str(file))
        return file.read_bytes()

    def runs(self) -> bool:
        """Whether the guest changes its memory within some seconds."""
        first = self.memory(_COUNTER, 4)
        for _ in range(_TRIES):
            if self.memory(_COUNTER, 4) != first:
                return True
            time.sleep(_PAUSE)
        return False


def migrate(source: Machine, target: Machine, uri: str, capabilities: list[str]) -> dict[str, Any]:
    """Migrate and return what query-migrate says at the end; ``RuntimeError`` if it fails."""
    wanted = [{"capability": name, "state": True} for name in capabilities]
    for machine in (source, target):
        machine.ask("migrate-set-capabilities", capabilities=wanted)
    target.ask("migrate-incoming", uri=uri)
    source.ask("migrate", uri=uri)
    said: dict[str, Any] = {}
    for _ in range(_TRIES):
        said = source.ask("query-migrate")
        if said.get("status") in ("completed", "failed", "cancelled"):
            break
        time.sleep(_PAUSE)
    if said.get("status") != "completed":
        raise RuntimeError(f"error: the migration has not completed: {said}")
    return said


def check(source: Machine, target: Machine, loaded: bytes) -> None:
    """Compare the memories of both. ``RuntimeError`` if they differ."""
    old, new = source.memory(), target.memory()
    if old != new:
        place = next(index for index, (a, b) in enumerate(zip(old, new, strict=True)) if a != b)
        raise RuntimeError(f"error: the memory differs at {place:#x}")
    if new[_LOADED_AT : _LOADED_AT + _LOADED] != loaded:
        raise RuntimeError("error: the memory is not what was loaded")


def run(uri: str, folder: Path, capabilities: list[str]) -> str:
    """Migrate a guest that runs, and return what came of it. ``RuntimeError`` if it fails."""
    bios = _BIOS.ljust(_BIOS_SIZE - 16, b"\0") + _RESET.ljust(16, b"\0")
    (folder / "bios").write_bytes(bios)
    loaded = Random(1).randbytes(_LOADED)
    (folder / "loaded").write_bytes(loaded)
    machines = []
    try:
        machines.append(target := Machine(folder, "target", "-S", "-incoming", "defer"))
        load = f"loader,file={folder / 'loaded'},addr={_LOADED_AT:#x},force-raw=on"
        machines.append(source := Machine(folder, "source", "-device", load))
        if not source.runs():
            raise RuntimeError("error: the guest does not run before the migration")
        said = migrate(source, target, uri, capabilities)
        check(source, target, loaded)
        target.ask("cont")
        if not target.runs():
            raise RuntimeError("error: the guest does not go on")
        sent = said["ram"]["transferred"]
        return f"{sent:,} bytes, completed, memory is equal, the guest goes on"
    finally:
        for machine in machines:
            machine.process.kill()
            machine.process.wait()


def main(address: str, port: str, folder: str, *capabilities: str) -> int:
    """Run. Return the exit status."""
    try:
        print(run(f"rdma:{address}:{port}", Path(folder), list(capabilities)))
    except RuntimeError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
