"""Fast registration: REG_MR and LOCAL_INV, IBA 10.6.4 and 11.4.1; invalidation of any key.

A region for fast registration is free (its key grants nothing) or valid. Work requests change
its state.
"""

from collections.abc import Callable, Sequence
from errno import EINVAL
from typing import Final, NamedTuple

from rdmawire.errors import VerbsError
from rdmawire.memory.address_space import AddressSpace
from rdmawire.memory.key import VARIANTS, Grant, KeyFault, KeyTable, ProtectionDomain, check_access
from rdmawire.memory.mw import MemoryWindow, WindowType
from rdmawire.memory.page import LAST_ADDRESS, PAGE_4K
from rdmawire.memory.region import PageList, Region
from rdmawire.validate import check_int, check_type

_LARGEST_PAGE: Final = 1 << 31


class FastRegistration(NamedTuple):
    """Parameters of REG_MR: bus pages of ``page_size`` bytes, first byte at ``iova``.

    The first byte has the same page offset as ``iova``. ``key`` is the region's key, with
    any variant.
    """

    key: int
    iova: int
    length: int
    access: int
    pages: Sequence[int]
    page_size: int = PAGE_4K

    @property
    def room(self) -> int:
        """Bytes from ``iova`` to the end of the last page."""
        return len(self.pages) * self.page_size - self.iova % self.page_size


Broken = Callable[[Region, FastRegistration], bool]

REFUSALS: Final[tuple[tuple[str, Broken], ...]] = (
    ("the region was not made for fast registration", lambda mr, _: not mr.max_pages),
    ("the region is valid: invalidate it first", lambda mr, _: mr.valid),
    ("the key has another index", lambda mr, reg: reg.key // VARIANTS != mr.key // VARIANTS),
    ("more pages than the region was made for", lambda mr, reg: len(reg.pages) > mr.max_pages),
    (
        "the page size is no power of two from 4 KiB to 2 GiB",
        lambda _, reg: (
            not PAGE_4K <= reg.page_size <= _LARGEST_PAGE
            or bool(reg.page_size & (reg.page_size - 1))
        ),
    ),
    ("the length does not fit the pages", lambda _, reg: not 0 < reg.length <= reg.room),
    (
        "addresses beyond 64 bits",
        lambda _, reg: reg.iova + reg.length > LAST_ADDRESS + 1,
    ),
)


def register_pages(
    keys: KeyTable, space: AddressSpace, region: Region, registration: FastRegistration
) -> None:
    """REG_MR. ``VerbsError`` EINVAL if a rule is violated, EFAULT for pages that do not exist."""
    keys.check_own(region)
    _check_numbers(registration)
    for reason, broken in REFUSALS:
        if broken(region, registration):
            raise VerbsError(f"cannot register region {region.key:#x}: {reason}", EINVAL)
    access = check_access(registration.access)
    _, iova, length, _, pages, page_size = registration
    backing = PageList(space, iova & -page_size, pages, page_size)
    keys.rekey(region, registration.key)
    region.translate(backing, iova, iova, length)
    region.allow(access)


def _check_numbers(registration: FastRegistration) -> None:
    for name, value in zip(FastRegistration._fields, registration, strict=True):
        if name != "pages":
            check_int(name, value)
    check_type("pages", registration.pages, Sequence)
    for page in registration.pages:
        check_int("page", page)


def invalidate(keys: KeyTable, key: int, pd: ProtectionDomain, qpn: int) -> KeyFault | None:
    """LOCAL_INV, or an invalidation by the peer; return a fault if it is not allowed.

    Allowed are regions for fast registration without bound windows, and windows of type 2
    on the queue pair they were bound on. Invalidating a free key has no effect.
    """
    grant = keys.find(key)
    if grant is None:
        return KeyFault.INVALID_KEY
    if grant.pd is not pd and grant.pd is not None:
        return KeyFault.WRONG_PD
    if grant.qpn and grant.qpn != qpn:
        return KeyFault.WRONG_QP
    return _take(grant)


def _take(grant: Grant) -> KeyFault | None:
    if isinstance(grant, MemoryWindow) and grant.type is not WindowType.TYPE_1:
        grant.unbind()
        return None
    if isinstance(grant, Region) and grant.max_pages and not grant.windows:
        grant.deny(KeyFault.NOT_BOUND)
        grant.drop()
        return None
    return KeyFault.NO_ACCESS
