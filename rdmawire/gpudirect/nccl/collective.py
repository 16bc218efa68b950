"""Collective operations: what they do, on how many GPUs, and with which of NCCL's settings."""

from enum import Enum
from typing import Final, NamedTuple

import numpy as np

from rdmawire.errors import CollectiveError
from rdmawire.gpudirect.nccl.connection import NetSettings
from rdmawire.gpudirect.nccl.layout import HostLayout, LocalPath
from rdmawire.gpudirect.nccl.protocol import PROTOCOLS, SIMPLE, SIMPLE_STEP, MessageProtocol

_LL_LIMIT: Final = 1 << 20
"""Bytes of an operation up to which LL is the default."""
_THREADS: Final = 512 * 8
"""Bytes per rank for which a channel is worth using: NCCL's threads times its threshold for LL."""
MAX_CHANNELS: Final = 8
MAX_RANKS: Final = 4096


class Collective(Enum):
    """A collective operation, by NCCL's name."""

    ALL_REDUCE = "allreduce"
    ALL_GATHER = "allgather"
    REDUCE_SCATTER = "reducescatter"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    ALL_TO_ALL = "alltoall"
    SEND_RECEIVE = "sendrecv"

    @property
    def is_ring(self) -> bool:
        """Whether values go around a ring; else each pair of ranks has a connection."""
        return self not in _PAIRS

    @property
    def has_root(self) -> bool:
        """Whether one rank has the values of all, or gets the sum."""
        return self in _ROOTED

    @property
    def is_split(self) -> bool:
        """Whether each rank owns one part of the values, or of the result."""
        return self in _SPLIT

    @property
    def adds(self) -> bool:
        """Whether the result is a sum of the values of all ranks."""
        return self in _SUMS


_PAIRS: Final = {Collective.ALL_TO_ALL, Collective.SEND_RECEIVE}
_ROOTED: Final = {Collective.BROADCAST, Collective.REDUCE}
_SPLIT: Final = {Collective.ALL_GATHER, Collective.REDUCE_SCATTER}
_SUMS: Final = {Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE}


class Algorithm(Enum):
    """The way of an operation, by the names of ``NCCL_ALGO``.

    ``RING`` is for all, the others for all-reduce. ``TREE`` is the double binary tree; in
    ``COLLNET`` a switch reduces (SHARP); in ``NVLS`` the NVSwitches of each host reduce too, and in
    ``NVLS_TREE`` trees join the hosts instead of a switch that reduces.
    """

    RING = "ring"
    TREE = "tree"
    COLLNET = "collnet"
    NVLS = "nvls"
    NVLS_TREE = "nvls-tree"

    @property
    def uses_nvswitch(self) -> bool:
        """Whether the NVSwitches of a host reduce."""
        return self in {Algorithm.NVLS, Algorithm.NVLS_TREE}


class CollectiveSpec(NamedTuple):
    """A collective operation: what it does, on how many hosts with how many GPUs each.

    ``size`` are the bytes of values, of all-gather those of the result. ``protocol`` and
    ``channels`` are NCCL's choice if they are not given. ``nvlink_rate`` is in bytes per second,
    ``nvlink_latency`` in ns. ``root`` is the rank of a broadcast or reduce. ``net`` are the
    settings of connections between hosts. ``layout`` says which adapters the GPUs of a host have,
    and how they reach one another; without it, each has its own adapter, and NVLink joins them.
    With ``spines``, adapters are on two leaf switches in turn, joined by this many spines, and
    ``balancing`` chooses among them (:class:`~rdmawire.fabric.SwitchSettings`); else on one switch.
    """

    collective: Collective = Collective.ALL_REDUCE
    hosts: int = 2
    gpus: int = 1
    size: int = 1 << 20
    protocol: str = ""
    channels: int = 0
    dtype: str = "int32"
    seed: int = 0
    nvlink_rate: float = 370.8e9
    nvlink_latency: int = 1000
    algorithm: Algorithm = Algorithm.RING
    root: int = 0
    net: NetSettings = NetSettings()
    layout: HostLayout | None = None
    spines: int = 0
    balancing: str = "flow"

    @property
    def ranks(self) -> int:
        """The number of GPUs."""
        return self.hosts * self.gpus

    @property
    def itemsize(self) -> int:
        """The bytes of a value."""
        return np.dtype(self.dtype).itemsize

    @property
    def values(self) -> int:
        """The number of values."""
        return self.size // self.itemsize

    @property
    def chosen_protocol(self) -> MessageProtocol:
        """The protocol that is given, or the one for this size; values alone between pairs."""
        if not self.collective.is_ring:
            return SIMPLE
        name = self.protocol or ("ll" if self.size <= _LL_LIMIT and self._may_flag else "simple")
        is_step = self.algorithm is not Algorithm.RING or self.collective.has_root
        return SIMPLE_STEP if is_step and name == "simple" else PROTOCOLS[name]

    @property
    def _may_flag(self) -> bool:
        """Whether messages may have flags: switches add values alone."""
        return self.algorithm in {Algorithm.RING, Algorithm.TREE}

    @property
    def chosen_channels(self) -> int:
        """The channels that are given, or those that are worth using."""
        if not self.collective.is_ring:
            return 1
        wanted = self.size // (_THREADS * self.ranks)
        return self.channels or max(1, min(wanted, MAX_CHANNELS))

    @property
    def chosen_layout(self) -> HostLayout:
        """The layout that is given, or NVLink between GPUs with an adapter each."""
        path = LocalPath(self.nvlink_rate, self.nvlink_latency)
        return self.layout or HostLayout.alike(self.gpus, path)

    def channel_order(self, channel: int) -> list[int]:
        """Return the ranks in the order of a channel, which enters each host at another GPU."""
        turned = [(channel + index) % self.gpus for index in range(self.gpus)]
        return [host * self.gpus + gpu for host in range(self.hosts) for gpu in turned]

    def share(self, channel: int, values: int) -> range:
        """Return those of ``values`` values that a channel works on."""
        first, end = (values * number // self.chosen_channels for number in (channel, channel + 1))
        return range(first, end)

    def check(self, max_ranks: int = MAX_RANKS) -> None:
        """Raise :class:`~rdmawire.errors.CollectiveError` for what cannot be done."""
        if not 2 <= self.ranks <= max_ranks:
            raise CollectiveError(f"{self.ranks} GPUs; 2 to {max_ranks} are supported")
        unit = self.itemsize * self.ranks
        if self.size % unit or self.size <= 0:
            raise CollectiveError(
                f"{self.size} bytes are no whole number of values of {self.itemsize} bytes for each"
                f" of {self.ranks} GPUs: take a multiple of {unit}"
            )
        if self.protocol not in {"", *PROTOCOLS}:
            raise CollectiveError(f"protocol {self.protocol}: there are {', '.join(PROTOCOLS)}")
        if self.channels < 0:
            raise CollectiveError(f"{self.channels} channels; 0 is NCCL's choice")
        if not 0 <= self.root < self.ranks:
            raise CollectiveError(f"root {self.root}: ranks are 0 to {self.ranks - 1}")
        self._check_algorithm()
        self.net.check()
        if self.layout is not None and self.layout.gpus != self.gpus:
            raise CollectiveError(
                f"the layout is of {self.layout.gpus} GPUs, the hosts have {self.gpus}"
            )

    def _check_algorithm(self) -> None:
        name, wanted = self.algorithm.value, self.collective
        if self.algorithm is Algorithm.RING:
            return
        if wanted is not Collective.ALL_REDUCE:
            raise CollectiveError(f"{name} is for allreduce, not for {wanted.value}: take ring")
        if self.protocol not in {"", "simple"} and not self._may_flag:
            raise CollectiveError(
                f"{name} has switches that add values, not flags: take the protocol simple"
            )
        if self.algorithm.uses_nvswitch and self.gpus < 2:
            raise CollectiveError(f"{name} needs hosts with two GPUs or more")


def bytes_sent(collective: Collective, size: int, ranks: int) -> int:
    """Return the bytes that a rank sends in a ring or to its peers, for ``size`` bytes in all.

    An all-reduce sends each chunk twice around the ring but for one step each: 2 (n - 1) / n. In an
    all-to-all each rank sends all but its own part, in a send-receive all to the next rank; so do,
    in a broadcast and a reduce, all ranks but the last one.
    """
    if collective is Collective.SEND_RECEIVE or collective.has_root:
        return size
    rounds = 2 if collective is Collective.ALL_REDUCE else 1
    return rounds * (ranks - 1) * size // ranks
