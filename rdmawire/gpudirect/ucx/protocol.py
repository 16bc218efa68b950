"""Which protocol a tag message takes, as UCX chooses it by size, memory and settings."""

from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from rdmawire.gpudirect.ucx.am import TRANSPORTS, AmId, MemoryType, header_size
from rdmawire.gpudirect.ucx.config import AUTO, AUTO_THRESHOLDS, UcxConfig


class Protocol(Enum):
    """Protocols of tag messages, by their names in UCX."""

    SHORT = "egr/short"
    BCOPY = "egr/single/bcopy"
    MULTI_BCOPY = "egr/multi/bcopy"
    ZCOPY = "egr/single/zcopy"
    MULTI_ZCOPY = "egr/multi/zcopy"
    GET_ZCOPY = "rndv/get/zcopy"
    PUT_ZCOPY = "rndv/put/zcopy"
    GET_PIPELINE = "rndv/get/mtype"
    PUT_PIPELINE = "rndv/put/mtype"

    @property
    def is_rendezvous(self) -> bool:
        """Whether the sender waits until the receiver is ready."""
        return self in _SCHEMES.values()

    @property
    def reads(self) -> bool:
        """Whether the receiver reads the data."""
        return self in (Protocol.GET_ZCOPY, Protocol.GET_PIPELINE)

    @property
    def is_pipeline(self) -> bool:
        """Whether data goes through fragments in host memory."""
        return self in (Protocol.GET_PIPELINE, Protocol.PUT_PIPELINE)

    @property
    def copies_in(self) -> bool:
        """Whether the sender copies the data to a buffer of its own."""
        return self in (Protocol.BCOPY, Protocol.MULTI_BCOPY)


_SCHEMES: Final = {
    "get_zcopy": Protocol.GET_ZCOPY,
    "put_zcopy": Protocol.PUT_ZCOPY,
    "get_ppln": Protocol.GET_PIPELINE,
    "put_ppln": Protocol.PUT_PIPELINE,
}
"""Protocols by the value of ``UCX_RNDV_SCHEME``."""


class BufferMemory(NamedTuple):
    """Memory of a buffer, and whether the adapter may access it."""

    type: MemoryType
    is_registered: bool = True


def choose(size: int, config: UcxConfig, sender: BufferMemory, receiver: BufferMemory) -> Protocol:
    """Return the protocol of a message of ``size`` bytes.

    A scheme of ``config`` that these memories do not allow is replaced by one that they do.
    """
    if size and size >= _rendezvous_size(config, sender):
        return _rendezvous(config.rndv_scheme, sender, receiver)
    fits = size <= single_size(config)
    if sender.is_registered and size >= _zcopy_size(config, sender):
        return Protocol.ZCOPY if fits else Protocol.MULTI_ZCOPY
    if _is_short(size, config, sender):
        return Protocol.SHORT
    return Protocol.BCOPY if fits else Protocol.MULTI_BCOPY


def _is_short(size: int, config: UcxConfig, sender: BufferMemory) -> bool:
    if sender.type is not MemoryType.HOST:
        return False
    if config.bcopy_thresh is not AUTO and size >= config.bcopy_thresh:
        return False
    overhead = TRANSPORTS[config.tls].header_size + header_size(AmId.EAGER_ONLY)
    return overhead + size <= min(config.max_short, config.rc_seg_size)


def _zcopy_size(config: UcxConfig, sender: BufferMemory) -> int:
    if config.zcopy_thresh is not AUTO:
        return config.zcopy_thresh
    return AUTO_THRESHOLDS[sender].zcopy


def _rendezvous_size(config: UcxConfig, sender: BufferMemory) -> int:
    if config.rndv_thresh is not AUTO:
        return config.rndv_thresh
    size = AUTO_THRESHOLDS[sender].rndv
    return config.rndv_send_nbr_thresh if size is None else size


def _rendezvous(scheme: str, sender: BufferMemory, receiver: BufferMemory) -> Protocol:
    allowed = list(_allowed(sender, receiver))
    wanted = _SCHEMES.get(scheme)
    return wanted if wanted in allowed else allowed[0]


def _allowed(sender: BufferMemory, receiver: BufferMemory) -> Iterator[Protocol]:
    """Yield the protocols of a rendezvous that these memories allow, the best one first."""
    if sender.is_registered and receiver.is_registered:
        yield Protocol.GET_ZCOPY
        yield Protocol.PUT_ZCOPY
    if sender.is_registered and receiver.type is MemoryType.CUDA:
        yield Protocol.GET_PIPELINE
    if MemoryType.CUDA in (sender.type, receiver.type):
        yield Protocol.PUT_PIPELINE


def segment_size(config: UcxConfig, am_id: AmId) -> int:
    """Return the bytes of data that a SEND of this message has at most."""
    overhead = TRANSPORTS[config.tls].header_size + header_size(am_id)
    return config.rc_seg_size - overhead


def single_size(config: UcxConfig) -> int:
    """Return the bytes of the longest message in one SEND."""
    return segment_size(config, AmId.EAGER_ONLY)


class Fragment(NamedTuple):
    """A part of a message in a SEND: its id, its offset and its size (bytes)."""

    am_id: AmId
    offset: int
    size: int


def fragments(size: int, config: UcxConfig) -> list[Fragment]:
    """Divide an eager message into SENDs."""
    if size <= single_size(config):
        return [Fragment(AmId.EAGER_ONLY, 0, size)]
    first = segment_size(config, AmId.EAGER_FIRST)
    step = segment_size(config, AmId.EAGER_MIDDLE)
    rest = range(first, size, step)
    return [
        Fragment(AmId.EAGER_FIRST, 0, first),
        *(Fragment(AmId.EAGER_MIDDLE, offset, min(step, size - offset)) for offset in rest),
    ]
