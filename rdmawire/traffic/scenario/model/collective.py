"""Collective operations among hosts: their keys, and how much they send.

The names are those of :mod:`rdmawire.gpudirect`, which does them; reading needs nothing of it.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from rdmawire.terminal import plural
from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import Node, NodeError
from rdmawire.traffic.scenario.references import HOST
from rdmawire.traffic.scenario.types import Custom, Definitions, Json, Many, Word

ALGORITHMS: Final = ("ring", "tree")
PROTOCOLS: Final = ("ll", "ll128", "simple")
DTYPES: Final[Mapping[str, int]] = {"int32": 4, "float32": 4}
"""Types of values, and their bytes."""
COLLECTIVE_MTU: Final = 4096
"""Path MTU of the connections of a collective, unless it is given."""
MAX_COLLECTIVE: Final = 1 << 28
"""Maximum bytes of a collective operation."""
MAX_CHANNELS: Final = 32
MAX_QPS: Final = 16
_USUAL_CHANNELS: Final = 8
"""The most channels of an operation that gives none."""

_HOSTS: Final = Many(HOST)


def _read_among(node: Node, context: ParseContext) -> tuple[str, ...]:
    hosts: tuple[str, ...] = _HOSTS.read(node, context)
    if len(hosts) < 2:
        raise NodeError(node.mark, plural(len(hosts), "host"), AMONG.description)
    for place, host in enumerate(hosts):
        if host in hosts[:place]:
            raise NodeError(node.mark, f"{host} twice", "each host once")
    return hosts


def _among_schema(definitions: Definitions) -> Json:
    return {"type": "array", "items": HOST.json(definitions), "minItems": 2}


AMONG: Final = Custom(
    "a list of two hosts or more, such as [client, server]",
    ("[client, server]",),
    _read_among,
    schema=_among_schema,
)
"""The hosts of a collective operation."""
ALGORITHM: Final = Word(ALGORITHMS)
PROTOCOL: Final = Word(PROTOCOLS)
DTYPE: Final = Word(DTYPES)


class CollectiveKind(NamedTuple):
    """What distinguishes a collective operation.

    ``pairwise``: each pair of hosts has a connection, and there are neither protocols nor channels.
    ``rooted``: one host has the values, or gets the sum. ``trees``: there is a choice of algorithm.
    """

    help: str
    pairwise: bool = False
    rooted: bool = False
    trees: bool = False


COLLECTIVES: Final[dict[str, CollectiveKind]] = {
    "allreduce": CollectiveKind(
        "Collective operation as NCCL does it: all hosts get the sum of the values of all.",
        trees=True,
    ),
    "allgather": CollectiveKind("Collective operation: all hosts get the parts of all."),
    "reducescatter": CollectiveKind("Collective operation: each host gets a part of the sum."),
    "broadcast": CollectiveKind(
        "Collective operation: all get the values of one host.", rooted=True
    ),
    "reduce": CollectiveKind("Collective operation: one host gets the sum.", rooted=True),
    "alltoall": CollectiveKind(
        "Collective operation: each host sends a part to each other.", pairwise=True
    ),
    "sendrecv": CollectiveKind("Collective operation: each host sends to the next.", pairwise=True),
}
"""The collective operations, by NCCL's names."""


class CollectiveLoad(NamedTuple):
    """Upper bounds of what a collective operation needs."""

    connections: int
    messages: int
    bytes: int


def load_of(verb: str, values: Mapping[str, Any]) -> CollectiveLoad:
    """Return bounds for an operation: LL doubles the bytes, an all-reduce sends them twice."""
    hosts = len(values["among"])
    channels = values.get("channels") or _USUAL_CHANNELS
    connections = hosts * (hosts - 1) if verb == "alltoall" else 2 * hosts * channels
    sent = hosts * values["size"] * 4
    return CollectiveLoad(connections, (sent >> 12) + 2 * hosts * connections, sent)
