"""Two transfer engines of Mooncake in two processes: a READ and a WRITE of host memory.

``python mooncake_engines.py TARGET INITIATOR`` names the devices of the two engines, and prints
what came of it; the exit status is 1 if data differ. Needs mooncake-transfer-engine-non-cuda and
numpy of PyPI.
"""

import sys
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

_SIZE = 4 << 20
_READ, _WRITTEN = 251, 7
_SECONDS = 30


def _engine(device: str, data: Any) -> tuple[Any, str]:
    """Return an engine that has registered memory, and its address."""
    mooncake: Any = import_module("mooncake.engine")
    engine = mooncake.TransferEngine()
    if engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", device):
        raise RuntimeError(f"error: no engine on {device}")
    if engine.register_memory(data.ctypes.data, _SIZE):
        raise RuntimeError(f"error: memory cannot be registered on {device}")
    return engine, f"127.0.0.1:{engine.get_rpc_port()}"


def _pattern() -> Any:
    return (np.arange(_SIZE) % _READ).astype(np.uint8)


def serve(pipe: Connection, device: str) -> None:
    """Be the target: offer a pattern, and say what it became."""
    data = _pattern()
    _, address = _engine(device, data)
    pipe.send((address, data.ctypes.data))
    pipe.recv()
    pipe.send(bool((data == _WRITTEN).all()))


def use(pipe: Connection, device: str) -> bool:
    """Be the initiator: read the pattern, write another. Return whether both are right."""
    data = np.zeros(_SIZE, np.uint8)
    engine, _ = _engine(device, data)
    address, place = pipe.recv()
    read = engine.transfer_sync_read(address, data.ctypes.data, place, _SIZE)
    right = bool((data == _pattern()).all())
    data[:] = _WRITTEN
    written = engine.transfer_sync_write(address, data.ctypes.data, place, _SIZE)
    pipe.send("end")
    arrived = pipe.recv()
    print(f"READ {read} {right}, WRITE {written} {arrived}", flush=True)
    return right and arrived


def main(target: str, initiator: str) -> int:
    """Run both engines. Return the exit status."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, target))
    process.start()
    try:
        right = use(ours, initiator)
        process.join(_SECONDS)
    finally:
        process.kill()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
