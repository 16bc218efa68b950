"""Settings of UCX that choose the protocol of a tag message: names, defaults, values for `auto`."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from rdmawire.errors import TransferError
from rdmawire.gpudirect.ucx.am import TRANSPORTS, MemoryType
from rdmawire.terminal import quote
from rdmawire.units import QuantityError, parse_quantity, size_factor

INF: Final = (1 << 64) - 1
"""The size `inf`: no message is so long."""
AUTO: Final = None
"""The value `auto` of a threshold: :data:`AUTO_THRESHOLDS` has it."""
SCHEMES: Final = ("auto", "get_zcopy", "put_zcopy", "get_ppln", "put_ppln")
MAX_SEG_SIZE: Final = 1 << 16
MIN_SEG_SIZE: Final = 128


class UcxConfig(NamedTuple):
    """The settings; sizes are bytes, a threshold of ``None`` is `auto`. See :data:`VARIABLES`."""

    tls: str = "rc_mlx5"
    bcopy_thresh: int | None = AUTO
    zcopy_thresh: int | None = AUTO
    rndv_thresh: int | None = AUTO
    rndv_send_nbr_thresh: int = 256 << 10
    rndv_scheme: str = "auto"
    rndv_frag_size: int = 512 << 10
    rndv_put_force_flush: bool = False
    rc_seg_size: int = 8256
    rc_verbs_tx_min_inline: int = 64
    rc_mlx5_dm_size: int = 2048

    @property
    def max_short(self) -> int:
        """Bytes of the longest short message, with all headers."""
        return self.rc_mlx5_dm_size if self.tls == "rc_mlx5" else self.rc_verbs_tx_min_inline


def _size(text: str) -> int:
    if text == "inf":
        return INF
    try:
        found = parse_quantity(text, size_factor)
    except QuantityError:
        raise ValueError("a size such as 64k or inf is expected") from None
    return found.value


def _threshold(text: str) -> int | None:
    try:
        return AUTO if text == "auto" else _size(text)
    except ValueError:
        raise ValueError("a size such as 64k, inf or auto is expected") from None


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"there are {', '.join(words)}")
        return text

    return read


def _between(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        size = _size(text)
        if not least <= size <= most:
            raise ValueError(f"{least} to {most} bytes are supported")
        return size

    return read


def _fragment(text: str) -> int:
    """Read ``512k``, or ``host:512k,cuda:4m``: fragments are in host memory here."""
    by_type = dict(part.split(":", 1) for part in text.split(",") if ":" in part)
    return _between(256, 1 << 30)(by_type.get("host", text))


def _flag(text: str) -> bool:
    return _one_of("y", "n")(text) == "y"


class Variable(NamedTuple):
    """A variable of the environment: its default, how it is read, what it sets, and its source."""

    default: str
    field: str
    read: Callable[[str], Any]
    meaning: str
    source: str


_CONTEXT: Final = "ucp/core/ucp_context.c"
_RC: Final = "uct/ib/rc/base/rc_iface.c"
VARIABLES: Final[Mapping[str, Variable]] = {
    "UCX_TLS": Variable(
        "rc_mlx5", "tls", _one_of(*TRANSPORTS), "transport of UCT", "uct/ib/mlx5/rc"
    ),
    "UCX_BCOPY_THRESH": Variable(
        "auto", "bcopy_thresh", _threshold, "size from which data is copied to a buffer", _CONTEXT
    ),
    "UCX_ZCOPY_THRESH": Variable(
        "auto", "zcopy_thresh", _threshold, "size from which data is not copied", _CONTEXT
    ),
    "UCX_RNDV_THRESH": Variable(
        "auto", "rndv_thresh", _threshold, "size from which a rendezvous is made", _CONTEXT
    ),
    "UCX_RNDV_SEND_NBR_THRESH": Variable(
        "256k",
        "rndv_send_nbr_thresh",
        _size,
        "the same for a send that should complete fast, with UCX_RNDV_THRESH=auto",
        _CONTEXT,
    ),
    "UCX_RNDV_SCHEME": Variable(
        "auto", "rndv_scheme", _one_of(*SCHEMES), "how a rendezvous moves data", _CONTEXT
    ),
    "UCX_RNDV_FRAG_SIZE": Variable(
        "host:512k,cuda:4m",
        "rndv_frag_size",
        _fragment,
        "bytes of a fragment of a pipeline, in host memory",
        _CONTEXT,
    ),
    "UCX_RNDV_PUT_FORCE_FLUSH": Variable(
        "n", "rndv_put_force_flush", _flag, "wait for WRITEs before the ATP", _CONTEXT
    ),
    "UCX_RC_SEG_SIZE": Variable(
        "8256",
        "rc_seg_size",
        _between(MIN_SEG_SIZE, MAX_SEG_SIZE),
        "bytes of a buffer for sends and receives",
        _RC,
    ),
    "UCX_RC_VERBS_TX_MIN_INLINE": Variable(
        "64",
        "rc_verbs_tx_min_inline",
        _between(16, 1024),
        "bytes of a short message of rc_verbs",
        "uct/ib/base/ib_iface.c",
    ),
    "UCX_RC_MLX5_DM_SIZE": Variable(
        "2k",
        "rc_mlx5_dm_size",
        _between(64, 4096),
        "bytes of a short message of rc_mlx5, in memory of the adapter",
        "uct/ib/mlx5/ib_mlx5.c",
    ),
}
"""The variables that are modelled, by name. Sources are files of UCX 1.23."""


def read_config(settings: Iterable[str] = ()) -> UcxConfig:
    """Read settings such as ``UCX_RNDV_THRESH=8k``; the others have their defaults.

    Raises :class:`TransferError` for a variable that is not modelled, and for an invalid value.
    """
    values: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if name not in VARIABLES or not equals:
            known = ", ".join(VARIABLES)
            raise TransferError(f"{quote(setting)} is no NAME=VALUE with one of {known}")
        variable = VARIABLES[name]
        try:
            values[variable.field] = variable.read(text.strip().lower())
        except ValueError as error:
            raise TransferError(f"{name}={quote(text)}: {error}") from None
    return UcxConfig(**values)


class AutoThresholds(NamedTuple):
    """Sizes from which data is not copied, and from which a rendezvous is made, with a source.

    ``rndv`` is ``None`` for that of ``UCX_RNDV_SEND_NBR_THRESH``.
    """

    zcopy: int
    rndv: int | None
    source: str


AUTO_THRESHOLDS: Final[Mapping[tuple[MemoryType, bool], AutoThresholds]] = {
    (MemoryType.HOST, True): AutoThresholds(
        16677, None, "ucx_info of rc_mlx5 in openucx/ucx issue 11097, for fast completion"
    ),
    (MemoryType.CUDA, True): AutoThresholds(
        0, 811_556, "UCX's frequently asked questions: protocols of osu_bw between GPUs"
    ),
    (MemoryType.CUDA, False): AutoThresholds(
        INF, 8247, "chosen here: what is longer than a segment; no table is published"
    ),
}
"""Values of `auto`, by the sender's memory, and whether the adapter may access it.

UCX computes them for each system from the estimated times of its protocols; these are published
ones.
"""
