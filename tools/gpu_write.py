"""GPU to GPU: an RDMA WRITE between the memories of two emulated GPUs, one packet lost on the way.

``python -m tools.gpu_write CAPTURE`` writes what was put on the link, the lost packet too.
"""

import sys

from rdmawire.fabric import ALL_ACCESS, End, Link, Pair
from rdmawire.memory import Path, Region
from rdmawire.memory.gpu import H200, Gpu, GpuDriver, Peermem
from rdmawire.units import us
from rdmawire.verbs import SendOpcode, SendWR, Sge

LENGTH = 8_000
LOST = 3


def gpu_beside(end: End) -> Gpu:
    """A GPU in the host of this end, whose memory its adapter can reach."""
    driver = GpuDriver(end.space)
    end.nic.memory.clients.append(Peermem(driver))
    return driver.add(H200)


def tensor(end: End, gpu: Gpu) -> Region:
    """Memory of the GPU, registered: the adapter goes to it through BAR1, not by the host."""
    address = gpu.allocate(LENGTH).address
    return end.nic.memory.reg_mr(end.pd, address, LENGTH, ALL_ACCESS)


def copies(end: End) -> str:
    """What the adapter did to memory."""
    counter = end.nic.memory.counter
    found = ((path.name, counter[path]) for path in Path)
    return ", ".join(f"{name} {tally.bytes} bytes" for name, tally in found)


def main(capture: str) -> None:
    pair = Pair(link=Link(latency=us(2), drop={LOST}))
    client, server = pair.client, pair.server
    near, far = gpu_beside(client), gpu_beside(server)
    source, target = tensor(client, near), tensor(server, far)
    near.write(source.address, bytes(range(250)) * (LENGTH // 250))
    with pair.captured(capture):
        sge = Sge(source.iova, LENGTH, source.lkey)
        work = SendWR(
            SendOpcode.RDMA_WRITE, (sge,), 1, remote_address=target.iova, rkey=target.rkey
        )
        client.nic.post_send(client.qp, [work])
        pair.drive()
    (done,) = client.poll()
    same = far.read(target.address, LENGTH) == near.read(source.address, LENGTH)
    print(f"RDMA WRITE of {done.byte_len} bytes: {done.status.name}, frame {LOST} lost")
    print(f"the GPUs hold {'the same data' if same else 'other data: this is a bug'}")
    print(f"client's adapter: {copies(client)}")
    print(f"server's adapter: {copies(server)}")
    if not same:
        raise SystemExit(1)


if __name__ == "__main__":
    main(sys.argv[1])
