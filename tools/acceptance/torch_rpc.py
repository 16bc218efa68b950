"""Two processes of PyTorch RPC, whose TensorPipe transfers tensors by its transport ibv.

``python torch_rpc.py PORT`` prints what came of it; the exit status is 1 if tensors differ. Needs
torch of PyPI.
"""

import sys
from importlib import import_module
from multiprocessing import get_context
from typing import Any

_SIZES = (0, 1, 1000, 65537, 1 << 20)
_SECONDS = 30


def _join(rank: int, port: str) -> Any:
    rpc: Any = import_module("torch.distributed.rpc")
    options = rpc.TensorPipeRpcBackendOptions(
        init_method=f"tcp://127.0.0.1:{port}", _transports=["ibv"], _channels=["basic"]
    )
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    return rpc


def serve(port: str) -> None:
    """Answer calls until the other process leaves."""
    _join(1, port).shutdown()


def main(port: str) -> int:
    """Have the other process add to tensors. Return the exit status."""
    torch: Any = import_module("torch")
    process = get_context("spawn").Process(target=serve, args=(port,))
    process.start()
    try:
        rpc = _join(0, port)
        tensors = [torch.arange(size) for size in _SIZES]
        sums = [rpc.rpc_sync("worker1", torch.add, args=(one, 7)) for one in tensors]
        right = all(bool((got == one + 7).all()) for got, one in zip(sums, tensors, strict=True))
        rpc.shutdown()
        process.join(_SECONDS)
    finally:
        process.kill()
    print(f"{len(sums)} tensors, {'all right' if right else 'error: they differ'}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
