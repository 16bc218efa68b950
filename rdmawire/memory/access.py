"""Access rights of regions and windows, IBA 10.6.3.1, with the numbers of ``ibv_access_flags``."""

from enum import IntFlag
from errno import EINVAL
from typing import Final

from rdmawire.errors import VerbsError
from rdmawire.validate import check_int


class Access(IntFlag):
    """What a region or a window allows; local read is always allowed and has no flag."""

    LOCAL_WRITE = 1
    REMOTE_WRITE = 2
    REMOTE_READ = 4
    REMOTE_ATOMIC = 8
    MW_BIND = 16
    ZERO_BASED = 32
    ON_DEMAND = 64
    HUGETLB = 128
    FLUSH_GLOBAL = 256
    FLUSH_PERSISTENT = 512
    RELAXED_ORDERING = 1 << 20


# What a checked access asks for, as plain integers: operations on IntFlag cost a microsecond.
LOCAL_READ: Final = 1 << 31  # no ibv number; regions always have it, windows never
LOCAL_WRITE: Final = Access.LOCAL_WRITE.value
REMOTE_WRITE: Final = Access.REMOTE_WRITE.value
REMOTE_READ: Final = Access.REMOTE_READ.value
REMOTE_ATOMIC: Final = Access.REMOTE_ATOMIC.value
FLUSH_GLOBAL: Final = Access.FLUSH_GLOBAL.value
FLUSH_PERSISTENT: Final = Access.FLUSH_PERSISTENT.value

REGION_FLAGS: Final = sum(flag.value for flag in Access)
WINDOW_FLAGS: Final = (
    REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | FLUSH_GLOBAL | FLUSH_PERSISTENT
) | Access.ZERO_BASED.value
DMABUF_FLAGS: Final = (
    LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | Access.RELAXED_ORDERING.value
)
# ibv_reg_mr(3): flags that an adapter may ignore when it does not know them.
OPTIONAL_FLAGS: Final = 0x3FF00000
CHANGES_MEMORY: Final = REMOTE_WRITE | REMOTE_ATOMIC


def check_access(access: int, allowed: int = REGION_FLAGS | OPTIONAL_FLAGS) -> int:
    """The rights as a plain integer; ``VerbsError`` EINVAL for rights that make no sense.

    Remote write and remote atomic need local write: ibv_reg_mr(3), IBA 10.6.3.1.
    """
    check_int("access", access, 0, 0xFFFF_FFFF)
    unknown = access & ~allowed
    if unknown:
        raise VerbsError(
            f"access {int(access):#x} has flags {int(unknown):#x}, not allowed", EINVAL
        )
    if access & CHANGES_MEMORY and not access & LOCAL_WRITE:
        raise VerbsError(f"access {int(access):#x} needs LOCAL_WRITE for remote changes", EINVAL)
    return int(access)
