"""The transfer of a request's KV cache from a prefill worker to a decode worker.

As a server does it with NIXL over UCX: the caches of all layers are registered, the decode worker
makes descriptors of blocks and reads them by RDMA READs, and then notifies the prefill worker,
which may use the blocks again. Times are ns, sizes bytes.
"""

from random import Random
from typing import Final, NamedTuple

from rdmawire.errors import FabricError, TransferError, VerbsError, WireError
from rdmawire.gpudirect.nixl.descriptor import (
    Descriptor,
    DescriptorPair,
    deserialize,
    merged,
    serialize,
)
from rdmawire.gpudirect.transfer.host import TransferHost
from rdmawire.gpudirect.transfer.host_pair import HostPair
from rdmawire.gpudirect.transfer.path import random_bytes
from rdmawire.gpudirect.ucx.am import ActiveMessage, AmHeader, AmId, MemoryType
from rdmawire.gpudirect.ucx.config import UcxConfig
from rdmawire.gpudirect.ucx.protocol import segment_size
from rdmawire.gpudirect.ucx.worker import PostedOperation, UserBuffer, connected_workers
from rdmawire.topology import Costs, Machine
from rdmawire.topology.cost import H200_COSTS
from rdmawire.units import SECOND
from rdmawire.verbs import SendOpcode

MAX_BYTES: Final = 1 << 27
"""Bytes of the caches of a worker."""
MAX_READS: Final = 4096
_SIDES: Final = 2
"""Tensors of a layer: keys and values."""
_DEPTH: Final = 8
_EAGER: Final = 2
"""``UCP_AM_SEND_FLAG_EAGER``."""
_NOTIFICATION: Final = 0
"""The id of NIXL's notifications: ``am_cb_op_t::NOTIF_STR``."""


class KvSpec(NamedTuple):
    """``blocks`` blocks of ``block_size`` tokens, in each of ``layers`` layers.

    ``token_bytes`` are the bytes of the keys of a token in a layer, and of its values. Each worker
    has ``pool`` blocks, of which the seed chooses those of the request; ``contiguous`` blocks are
    next to each other. ``merges`` joins descriptors that are. ``notification`` is the text to the
    prefill worker. ``source`` (prefill) and ``target`` (decode) are GPUs; ``rate`` is that of the
    wire in bits per second, 0 for that of the adapter's port.
    """

    machine: Machine
    source: str
    target: str
    blocks: int = 16
    block_size: int = 16
    layers: int = 4
    token_bytes: int = 2048
    pool: int = 64
    contiguous: bool = False
    merges: bool = True
    memory: MemoryType = MemoryType.CUDA
    notification: str = "request-0:1"
    config: UcxConfig = UcxConfig()
    rate: int = 0
    mtu: int = 4096
    latency: int = 300
    seed: int = 0
    costs: Costs = H200_COSTS

    @property
    def block_bytes(self) -> int:
        """Bytes of a block in a tensor."""
        return self.block_size * self.token_bytes

    @property
    def size(self) -> int:
        """Bytes of the request."""
        return self.blocks * self.layers * _SIDES * self.block_bytes


class KvReport(NamedTuple):
    """What a transfer took.

    ``duration`` is the time until the decode worker has all blocks, ``notified`` that until the
    prefill worker has the notification. ``descriptors`` is the number of blocks in all tensors,
    ``reads`` that of RDMA READs after merging.
    """

    size: int
    descriptors: int
    reads: int
    duration: int
    notified: int
    cpu: float
    frames: int
    wire_bytes: int
    posted: tuple[PostedOperation, ...]

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.size / self.duration * SECOND


class KvTransfer:
    """A transfer; :meth:`run` does it, once. ``network`` carries its packets.

    Raises :class:`TransferError` if the hosts cannot do it.
    """

    def __init__(self, spec: KvSpec) -> None:
        _check(spec)
        self.spec = spec
        self._pair = HostPair(spec, ("prefill", "decode"), spec.size)
        self.network, self.hosts = self._pair.network, self._pair.hosts
        self.caches = [self._cache(host) for host in self.hosts]
        random = Random(spec.seed)  # noqa: S311 - repeatable
        self.block_ids = [self._choose(random) for _ in self.hosts]
        pairs = self._pairs()
        self._descriptors = len(pairs)
        self._reads = merged(pairs) if spec.merges else pairs
        self._posted: list[PostedOperation] = []
        depths = (_DEPTH, max(_DEPTH, len(self._reads)))
        workers = connected_workers(self._pair, spec, depths, self._posted)
        self._prefill, self._decode = workers
        self._prefill.handlers[AmId.AM_SINGLE] = self._take_notification
        self._duration = self._notified = 0
        self._left = len(self._reads)
        self._before = self._fill()

    def _cache(self, host: TransferHost) -> list[UserBuffer]:
        """Allocate and register the tensors of a worker; :class:`TransferError` if it may not."""
        size = self.spec.pool * self.spec.block_bytes
        tensors = []
        for _ in range(self.spec.layers * _SIDES):
            tensor = UserBuffer(host, self.spec.memory, size)
            if tensor.reason:
                raise TransferError(f"{host.name}: {tensor.reason}")
            tensors.append(tensor)
        return tensors

    def _choose(self, random: Random) -> list[int]:
        """Choose the blocks of the request in the pool of a worker."""
        spec = self.spec
        if spec.contiguous:
            first = random.randint(0, spec.pool - spec.blocks)
            return list(range(first, first + spec.blocks))
        return random.sample(range(spec.pool), spec.blocks)

    def _pairs(self) -> list[DescriptorPair]:
        """Return the descriptors of all blocks, tensor by tensor."""
        there, here = self.block_ids
        return [
            DescriptorPair(self._block(1, tensor, own), self._block(0, tensor, other))
            for tensor in range(self.spec.layers * _SIDES)
            for own, other in zip(here, there, strict=True)
        ]

    def _block(self, worker: int, tensor: int, number: int) -> Descriptor:
        size = self.spec.block_bytes
        return Descriptor(self.caches[worker][tensor].address + number * size, size, tensor)

    def _fill(self) -> list[list[bytes]]:
        """Fill both caches with bytes that differ; return what they are, by worker and tensor."""
        written = []
        for worker, cache in enumerate(self.caches):
            data = [
                random_bytes(tensor.size, self.spec.seed * 1024 + 2 * number + worker)
                for number, tensor in enumerate(cache)
            ]
            for tensor, content in zip(cache, data, strict=True):
                tensor.write(0, content)
            written.append(data)
        return written

    def run(self) -> KvReport:
        """Do the transfer, and compare the caches of the decode worker.

        Raises :class:`TransferError` if the connection fails, or if data is wrong.
        """
        for pair in self._reads:
            self._read(pair)
        try:
            self.network.simulator.run()
        except (FabricError, VerbsError, WireError) as error:
            raise TransferError(f"the transfer does not end: {error}") from error
        if not self._notified:
            raise TransferError(f"{self._left} READs are not complete")
        self._compare()
        return KvReport(
            self.spec.size,
            self._descriptors,
            len(self._reads),
            self._duration,
            self._notified,
            sum(host.cpu for host in self.hosts),
            self._pair.traffic.frames,
            self._pair.traffic.bytes,
            tuple(self._posted),
        )

    def _read(self, pair: DescriptorPair) -> None:
        """Post the READ of a pair (``ucp_get_nbx``)."""
        local, remote = pair
        tensor = self.caches[1][local.tensor]
        target = self.caches[0][remote.tensor].registered
        assert target is not None
        sge = tensor.sge(local.address - tensor.address, local.length)
        self._decode.rdma(SendOpcode.RDMA_READ, sge, remote.address, target.rkey, self._complete)

    def _complete(self) -> None:
        """Take the completion of a READ; after the last one the blocks may be used."""
        self._left -= 1
        if not self._left:
            self._decode.visible(self.caches[1][0], self._notify)

    def _notify(self) -> None:
        """Send the notification: an active message with the name of the agent and the text."""
        self._duration = self.network.simulator.now
        header = AmHeader(_NOTIFICATION, _EAGER, 0)
        message = ActiveMessage(AmId.AM_SINGLE, header, _notification(self.spec))
        self._decode.send(message, inline=True)

    def _take_notification(self, message: ActiveMessage) -> None:
        fields = deserialize(message.rest, ("name", "msg"))
        if fields["msg"] != self.spec.notification.encode():
            raise TransferError(f"a notification of {fields['msg']!r}")
        self._notified = self.network.simulator.now

    def _compare(self) -> None:
        """Compare all blocks of the decode worker; :class:`TransferError` if one is wrong."""
        there, here = self.block_ids
        sources = dict(zip(here, there, strict=True))
        size = self.spec.block_bytes
        for number, tensor in enumerate(self.caches[1]):
            for block in range(self.spec.pool):
                worker, source = (0, sources[block]) if block in sources else (1, block)
                wanted = self._before[worker][number][source * size : (source + 1) * size]
                if tensor.read(block * size, size) != wanted:
                    raise TransferError(f"block {block} of tensor {number} is wrong")


def kv_transfer(spec: KvSpec) -> KvReport:
    """Transfer the KV cache of a request; return what it took.

    Raises :class:`TransferError` if the hosts cannot do it, or if it fails.
    """
    return KvTransfer(spec).run()


_BOUNDS: Final = {
    "blocks": (1, 4096),
    "block_size": (1, 4096),
    "layers": (1, 256),
    "token_bytes": (1, 1 << 16),
    "pool": (1, 1 << 16),
}


def _check(spec: KvSpec) -> None:
    for name, (least, most) in _BOUNDS.items():
        if not least <= getattr(spec, name) <= most:
            words = name.replace("_", " ")
            raise TransferError(f"{words}: {getattr(spec, name)}; {least} to {most} are supported")
    if spec.blocks > spec.pool:
        raise TransferError(f"{spec.blocks} blocks of a pool of {spec.pool}")
    _check_sizes(spec)


def _check_sizes(spec: KvSpec) -> None:
    cache = spec.pool * spec.layers * _SIDES * spec.block_bytes
    if cache > MAX_BYTES:
        raise TransferError(f"caches of {cache} bytes; up to {MAX_BYTES} are supported")
    if spec.blocks * spec.layers * _SIDES > MAX_READS:
        raise TransferError(
            f"{spec.blocks * spec.layers * _SIDES} descriptors; up to {MAX_READS} are supported"
        )
    room = segment_size(spec.config, AmId.AM_SINGLE)
    if (size := len(_notification(spec))) > room:
        raise TransferError(f"a notification of {size} bytes; a segment of UCX has room for {room}")


def _notification(spec: KvSpec) -> bytes:
    """Return the name of the agent and the text that it sends."""
    return serialize({"name": b"decode", "msg": spec.notification.encode()})
