"""The thread of the C library that copies memory for the service."""

import os
import socket
import subprocess
from errno import EFAULT, EINVAL
from pathlib import Path

import pytest

from rdmawire.verbs_service.protocol import (
    COPY_BUFFER_BYTES,
    COPY_READ,
    COPY_REQUEST,
    COPY_WRITE,
    MEMORY_OF_GPU,
    MEMORY_OF_HOST,
    Call,
)
from tests.verbs_service.c_programs import CSRC, compile_shared, environment, library, program
from tests.verbs_service.fake_service import FakeConnection, FakeService
from tests.waiting import HANG, wait_until

SANITIZERS = ("address", "undefined")
UNMAPPED = 0x1000
"""No process has memory there."""


class CopyingConnection(FakeConnection):
    """Asks its client to copy."""

    copy_thread = 1

    def __init__(self, connected: socket.socket) -> None:
        self.registered: list[int] = []
        super().__init__(connected)

    def _value(self, call: Call, name: str, arguments: list[int]) -> int:
        if name == "copy_thread":
            return self.copy_thread
        if call.name == "reg_mr" and name == "mr":
            self.registered.append(arguments[call.request.index("memory")])
        return super()._value(call, name, arguments)

    def copy(self, direction: int, memory: int, address: int, length: int) -> int:
        """Ask for a copy, and return its errno."""
        with socket.socket(fileno=os.dup(self.copy_socket)) as asking:
            asking.send(COPY_REQUEST.struct.pack(direction, memory, 0, address, length))
            return int.from_bytes(asking.recv(64), "little")

    def read(self, memory: int, address: int, length: int) -> bytes:
        """Read memory of the client."""
        assert self.copy(COPY_READ, memory, address, length) == 0
        return os.pread(self.rings["copy_buffer"], length, 0)

    def write(self, memory: int, address: int, data: bytes) -> None:
        """Write memory of the client."""
        os.pwrite(self.rings["copy_buffer"], data, 0)
        assert self.copy(COPY_WRITE, memory, address, len(data)) == 0


class GpuConnection(CopyingConnection):
    """Starts without the thread: registering device memory starts it."""

    copy_thread = 0


class CopyingService(FakeService):
    """A service that copies."""

    def __init__(self, path: Path, kind: type[CopyingConnection]) -> None:
        self.kind = kind
        self.clients: list[CopyingConnection] = []
        super().__init__(path)

    def connection(self, connected: socket.socket) -> FakeConnection:
        self.clients.append(self.kind(connected))
        return self.clients[-1]

    @property
    def opened(self) -> CopyingConnection:
        """The connection with a device open. Its thread may answer before it is in the list."""
        wait_until(lambda: any(client.copy_socket >= 0 for client in self.clients))
        return next(client for client in self.clients if client.copy_socket >= 0)


def start(scenario: str, service: FakeService, folder: Path) -> "subprocess.Popen[str]":
    """Start the program. It prints an address, and then waits for a line."""
    path = program("copies", *SANITIZERS)
    variables = environment(path.parent, service.path)
    variables["LD_LIBRARY_PATH"] += f":{folder}"
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [path, scenario], env=variables, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )


def end(running: "subprocess.Popen[str]", service: FakeService) -> None:
    """Let the program go on to its checks."""
    _, said = running.communicate("\n", timeout=HANG)
    service.close()
    assert running.returncode == 0, said


def address_of(running: "subprocess.Popen[str]") -> int:
    """Return the address that the program prints."""
    assert running.stdout is not None
    return int(running.stdout.readline())


def test_memory_of_a_process_is_copied_by_its_thread(tmp_path: Path) -> None:
    service = CopyingService(tmp_path / "verbs.sock", CopyingConnection)
    running = start("host", service, tmp_path)
    address = address_of(running)
    client = service.opened
    assert client.read(MEMORY_OF_HOST, address, 16) == b"from the program"
    client.write(MEMORY_OF_HOST, address, b"from the service\0")
    end(running, service)


@pytest.mark.parametrize(
    ("direction", "memory", "address", "length", "error"),
    [
        (COPY_READ, MEMORY_OF_HOST, UNMAPPED, 8, EFAULT),
        (COPY_WRITE, MEMORY_OF_HOST, UNMAPPED, 8, EFAULT),
        (COPY_READ, MEMORY_OF_HOST, 1 << 63, 8, EFAULT),
        (COPY_READ, MEMORY_OF_GPU, UNMAPPED, 8, EFAULT),
        (COPY_READ, MEMORY_OF_HOST, None, COPY_BUFFER_BYTES + 1, EINVAL),
        (7, MEMORY_OF_HOST, None, 8, EINVAL),
        (COPY_READ, 9, None, 8, EINVAL),
    ],
)
def test_copies_that_cannot_be_are_refused(
    tmp_path: Path, direction: int, memory: int, address: int | None, length: int, error: int
) -> None:
    service = CopyingService(tmp_path / "verbs.sock", CopyingConnection)
    running = start("host", service, tmp_path)
    mapped = address_of(running)
    client = service.opened
    assert client.copy(direction, memory, mapped if address is None else address, length) == error
    client.write(MEMORY_OF_HOST, mapped, b"from the service\0")
    end(running, service)


def test_device_memory_is_found_and_copied_by_cuda(tmp_path: Path) -> None:
    compile_shared(CSRC / "tests" / "fake_cuda.c", tmp_path / "libcuda.so.1")
    service = CopyingService(tmp_path / "verbs.sock", GpuConnection)
    running = start("gpu", service, tmp_path)
    address = address_of(running)
    client = service.opened
    assert client.registered == [MEMORY_OF_HOST, MEMORY_OF_GPU, MEMORY_OF_GPU]
    for part in (address, address + 4096):
        assert client.read(MEMORY_OF_GPU, part, 16) == b"from the program"
        client.write(MEMORY_OF_GPU, part, b"from the service\0")
    assert client.copy(COPY_READ, MEMORY_OF_GPU, address + 8190, 8) == EFAULT
    end(running, service)


def test_the_library_needs_no_cuda() -> None:
    needed = subprocess.run(
        ["objdump", "-p", library() / "libibverbs.so.1"], capture_output=True, text=True, check=True
    )
    assert "libcuda" not in needed.stdout
