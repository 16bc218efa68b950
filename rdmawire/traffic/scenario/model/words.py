"""Words of a scenario that are names of other rooms: types, states, errnos, access rights."""

from typing import Final

from rdmawire.memory.access import Access
from rdmawire.traffic.scenario.tables import TYPES
from rdmawire.traffic.scenario.types import Many, Word
from rdmawire.verbs.enums import QPState, WCStatus
from rdmawire.wire.ib import Placement, Selectivity

TYPE: Final = Word(tuple(TYPES))
STATE: Final = Word(tuple(QPState.__members__))
STATUS: Final = Word((*WCStatus.__members__, "none"), "how work ends")
ERRNO: Final = Word(
    (
        *("EINVAL", "ENOMEM", "EFAULT", "EBUSY", "EOPNOTSUPP", "ENOTSUPP"),
        *("EACCES", "EBADF", "EEXIST", "EIO", "ENODEV", "ETIMEDOUT"),
    )
)
"""The errors of verbs."""
ACCESS: Final = Many(Word(tuple(Access.__members__)), alone=True)
PLACEMENT: Final = Word(tuple(Placement.__members__))
SELECTIVITY: Final = Word(tuple(Selectivity.__members__))
