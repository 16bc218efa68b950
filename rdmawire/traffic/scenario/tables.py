"""Words of scenario files mapped to objects of other packages, for the reader and the runner."""

from enum import IntEnum
from typing import Final

from rdmawire.ib.cm.event import Rejected, Unresolved
from rdmawire.ib.congestion.dcqcn import DcqcnParameters
from rdmawire.ib.congestion.timely import TimelyParameters
from rdmawire.memory.gpu.device import A100, H200, T4, GpuProfile
from rdmawire.memory.key import Access
from rdmawire.traffic.scenario.types import Many, Word
from rdmawire.verbs.enums import QPState, QPType, WCStatus
from rdmawire.wire.cm import RejectReason, SIDRStatus
from rdmawire.wire.ib import Placement, Selectivity

TYPES: Final = {
    "RC": (QPType.RC, QPType.RC),
    "UC": (QPType.UC, QPType.UC),
    "UD": (QPType.UD, QPType.UD),
    "XRC": (QPType.XRC_INI, QPType.XRC_TGT),
}
"""Types of connections: the queue pair types at the first end and at the second."""

MODELS: Final[dict[str, GpuProfile]] = {profile.name: profile for profile in (T4, A100, H200)}
"""GPUs by the names of their models."""

VIAS: Final = ("peermem", "peermem-legacy", "dmabuf", "bounce")
"""Methods by which an adapter accesses the memory of a GPU."""

CONNECTS: Final = ("at once", "cm")
"""Methods of connecting the two ends of a connection."""

REASONS: Final[dict[str, type[IntEnum]]] = {
    Rejected.__name__: RejectReason,
    Unresolved.__name__: SIDRStatus,
}
"""Events with a reason, and the enumeration of their reasons."""


def reason_of(event: Rejected | Unresolved) -> str:
    """Return the standard's name of the reason of a rejection, or its number without one."""
    number = event.reason if isinstance(event, Rejected) else event.status
    words = REASONS[type(event).__name__]
    return next((word.name for word in words if word == number), str(number))


SUCCESS: Final = WCStatus.SUCCESS.name
"""The status of successful work."""

SCHEMES: Final[dict[str, DcqcnParameters | TimelyParameters]] = {
    "dcqcn": DcqcnParameters(),
    "timely": TimelyParameters(),
}
"""Schemes of congestion control, with their default parameters."""

QUEUE: Final = 1024
"""Work requests in each queue of a queue pair, unless a step needs more."""


TYPE: Final = Word(tuple(TYPES))
STATE: Final = Word(tuple(QPState.__members__))
STATUS: Final = Word((*WCStatus.__members__, "none"), "how work ends")
ERRNO: Final = Word(
    (
        *("EINVAL", "ENOMEM", "EFAULT", "EBUSY", "EOPNOTSUPP", "ENOTSUPP"),
        *("EACCES", "EBADF", "EEXIST", "EIO", "ENODEV", "ETIMEDOUT"),
    )
)
"""The errno names of verbs."""
ACCESS: Final = Many(Word(tuple(Access.__members__)), alone=True)
PLACEMENT: Final = Word(tuple(Placement.__members__))
SELECTIVITY: Final = Word(tuple(Selectivity.__members__))
