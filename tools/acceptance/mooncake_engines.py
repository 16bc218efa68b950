"""Two transfer engines of Mooncake in two processes: a READ and a WRITE of host memory.

``python -m tools.acceptance.mooncake_engines TARGET INITIATOR`` names the devices of the two
engines, and prints what came of it; the exit status is 1 if data differ. Needs
mooncake-transfer-engine-non-cuda and numpy of PyPI.
"""

import sys
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from tools.acceptance.peers import WRITTEN, main, pattern

_SIZE = 4 << 20


def _engine(device: str, data: Any) -> tuple[Any, str]:
    """Return an engine that has registered memory, and its address."""
    mooncake: Any = import_module("mooncake.engine")
    engine = mooncake.TransferEngine()
    if engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", device):
        raise RuntimeError(f"error: no engine on {device}")
    if engine.register_memory(data.ctypes.data, _SIZE):
        raise RuntimeError(f"error: memory cannot be registered on {device}")
    return engine, f"127.0.0.1:{engine.get_rpc_port()}"


def serve(pipe: Connection, device: str) -> bool:
    """Be the target: offer a pattern. Return whether it was overwritten as expected."""
    data = pattern(_SIZE)
    _, address = _engine(device, data)
    pipe.send((address, data.ctypes.data))
    pipe.recv()
    right = bool((data == WRITTEN).all())
    pipe.send(right)
    return right


def use(pipe: Connection, device: str) -> bool:
    """Be the initiator: read the pattern, write another. Return whether both are right."""
    data = np.zeros(_SIZE, np.uint8)
    engine, _ = _engine(device, data)
    address, place = pipe.recv()
    read = engine.transfer_sync_read(address, data.ctypes.data, place, _SIZE)
    right = bool((data == pattern(_SIZE)).all())
    data[:] = WRITTEN
    written = engine.transfer_sync_write(address, data.ctypes.data, place, _SIZE)
    pipe.send("end")
    arrived = pipe.recv()
    print(f"READ {read} {right}, WRITE {written} {arrived}", flush=True)
    return right and arrived


if __name__ == "__main__":
    sys.exit(main(serve, use, *sys.argv[1:]))
