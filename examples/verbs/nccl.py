"""NCCL collectives on PyTorch, with every result checked: one rank for each GPU.

    rdmawire verbs --devices 2 -- python examples/verbs/nccl.py 2 --sizes 8,1024,65536

Prints for each collective and size of a rank's buffer the best time of a few runs in ms. Ends with
status 1 after a wrong result.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

ENVIRONMENT = {
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_NET": "IB",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_GIN_TYPE": "2",
    "NCCL_GIN_ENABLE": "0",
    "NCCL_IB_TIMEOUT": "20",
}
"""Ranks of one machine use the network. Values of the environment have priority."""

Run = Callable[[int, int, int], bool]
"""Runs a collective with a rank, the number of ranks and of elements; returns if it was right."""


def values(rank: int, count: int) -> torch.Tensor:
    """Integers that differ between ranks, and are exact in sums."""
    return ((torch.arange(count, device="cuda") + 7 * rank) % 97).float()


def all_reduce(rank: int, ranks: int, count: int) -> bool:
    """Add up the buffers of all ranks."""
    data = values(rank, count)
    dist.all_reduce(data)
    return bool(torch.equal(data, sum(values(one, count) for one in range(ranks))))


def all_gather(rank: int, ranks: int, count: int) -> bool:
    """Give all ranks the buffers of all."""
    parts = torch.empty(count * ranks, device="cuda")
    dist.all_gather_into_tensor(parts, values(rank, count))
    return bool(torch.equal(parts, torch.cat([values(one, count) for one in range(ranks)])))


def reduce_scatter(rank: int, ranks: int, count: int) -> bool:
    """Give each rank its part of the sum."""
    count -= count % ranks
    part = torch.empty(count // ranks, device="cuda")
    dist.reduce_scatter_tensor(part, values(rank, count))
    wanted = sum(values(one, count) for one in range(ranks))
    return bool(torch.equal(part, wanted.chunk(ranks)[rank]))


def all_to_all(rank: int, ranks: int, count: int) -> bool:
    """Give each rank its part of each buffer."""
    count -= count % ranks
    parts = torch.empty(count, device="cuda")
    dist.all_to_all_single(parts, values(rank, count))
    wanted = [values(one, count).chunk(ranks)[rank] for one in range(ranks)]
    return bool(torch.equal(parts, torch.cat(wanted)))


def sendrecv(rank: int, ranks: int, count: int) -> bool:
    """Send a buffer to the next rank, and receive one."""
    part = torch.empty(count, device="cuda")
    operations = [
        dist.P2POp(dist.isend, values(rank, count), (rank + 1) % ranks),
        dist.P2POp(dist.irecv, part, (rank - 1) % ranks),
    ]
    for request in dist.batch_isend_irecv(operations):
        request.wait()
    return bool(torch.equal(part, values((rank - 1) % ranks, count)))


COLLECTIVES: dict[str, Run] = {
    run.__name__: run for run in (all_reduce, all_gather, reduce_scatter, all_to_all, sendrecv)
}


def measure(run: Run, rank: int, ranks: int, count: int, times: int) -> tuple[float, bool]:
    """The best time in ms, and whether all results were right."""
    best, right = float("inf"), True
    for _ in range(times):
        dist.barrier()
        torch.cuda.synchronize()
        start = time.perf_counter()
        right = run(rank, ranks, count) and right
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) * 1e3)
    return best, right


def work(rank: int, ranks: int, sizes: list[int]) -> None:
    """Run all collectives as one rank."""
    os.environ["NCCL_IB_HCA"] = f"=rw{rank}"
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=ranks)
    wrong = 0
    for name, run in COLLECTIVES.items():
        for size in sizes:
            best, right = measure(run, rank, ranks, size // 4, 4 if size < 16 << 20 else 2)
            verdict = torch.tensor(float(not right), device="cuda")
            dist.all_reduce(verdict)
            wrong += bool(verdict.item())
            if not rank:
                print(f"{name:15} {size:9} B {best:9.2f} ms {'WRONG' * bool(verdict.item())}")
    dist.destroy_process_group()
    sys.exit(bool(wrong))


def main() -> None:
    """Start a process for each rank."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ranks", type=int, help="number of GPUs, of devices rw0, rw1 and so on")
    parser.add_argument("--sizes", default="8,1024,65536,1048576,16777216,67108864")
    arguments = parser.parse_args()
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    sizes = [int(size) for size in arguments.sizes.split(",")]
    processes.spawn(work, (arguments.ranks, sizes), arguments.ranks)


if __name__ == "__main__":
    main()
