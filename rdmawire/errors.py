"""The exceptions of rdmawire: four families, one root.

A reaction to a peer is not an exception but a NAK and a completion; these are for invalid
bytes (:class:`WireError`), for files (:class:`CaptureError`), for memory accesses
(:class:`MemoryFault`) and for callers of the verbs (:class:`VerbsError`).
"""

from errno import EINVAL, errorcode
from typing import Final

ENOTSUPP: Final = 524  # the kernel's own, which errno has no name for

_NAMES: Final = {**errorcode, ENOTSUPP: "ENOTSUPP"}


def _copied(kind: type[BaseException], args: tuple[object, ...]) -> BaseException:
    """Make an error of this class without calling its constructor."""
    return kind.__new__(kind, *args)


class Copyable(BaseException):
    """An error that can be pickled and copied, whatever its constructor takes.

    Python rebuilds an error by calling its constructor with ``args``, which is the text alone. A
    constructor with other parameters then fails, and an error in a worker of
    ``multiprocessing.Pool`` leaves the caller waiting forever. Here it is not called.
    """

    def __reduce__(self) -> tuple[object, ...]:
        return _copied, (type(self), self.args), vars(self)


class Ended(BaseException):
    """A signal that ends the run was received: ``number``. No ``except Exception`` catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class RdmaError(Copyable, Exception):
    """Root of all errors that rdmawire raises on purpose."""


class PlacedError(RdmaError):
    """An error with an optional position: ``offset`` bytes from a start, or ``None``."""

    def __init__(self, reason: str, offset: int | None = None) -> None:
        super().__init__(reason if offset is None else f"{reason} (at byte {offset})")
        self.reason = reason
        self.offset = offset


class WireError(PlacedError):
    """Bytes, or values for bytes, that the standard does not allow.

    ``offset`` counts from the start of the given buffer; it is ``None`` where there is no
    position, as when a value does not fit its field.
    """


class CaptureError(PlacedError):
    """A capture file that is damaged, unknown or cannot be read or written.

    ``offset`` counts from the start of the uncompressed file.
    """


class UnrepresentableError(CaptureError):
    """A value that a capture file cannot hold. The file is unchanged and can be continued."""


class MemoryFault(RdmaError):
    """An access that the emulated memory refuses: ``length`` bytes at ``address``."""

    def __init__(self, reason: str, address: int, length: int) -> None:
        super().__init__(f"{reason}: {length} bytes at {address:#x}")
        self.reason = reason
        self.address = address
        self.length = length


class PageFault(MemoryFault):
    """An access to pages of an on-demand region that are not present before ``ready`` (ns)."""

    def __init__(self, reason: str, address: int, length: int, ready: int) -> None:
        super().__init__(reason, address, length)
        self.ready = ready


class MemoryBusy(PageFault):
    """An access to memory that is being copied: it may be tried again at ``ready`` (ns)."""


class OwnerGone(MemoryFault):
    """An access to memory of a process that has ended."""


class VerbsError(RdmaError):
    """An invalid verb call; ``errno`` is the value that libibverbs would return."""

    def __init__(self, reason: str, errno: int = EINVAL) -> None:
        super().__init__(f"{reason} [{_NAMES.get(errno, errno)}]")
        self.reason = reason
        self.errno = errno


class TopologyError(RdmaError):
    """A host whose devices, or a description of them, cannot be."""


class CollectiveError(RdmaError):
    """A collective operation that cannot be done, or that has failed."""


class CudaError(RdmaError):
    """A call of the CUDA driver that failed."""


class KernelError(RdmaError):
    """A GPU kernel, or what one does with a queue or a symmetric heap, that cannot go on."""


class TransferError(RdmaError):
    """A transfer between GPUs that cannot be done on its path, or that has failed."""


class WorkloadError(RdmaError):
    """A trace of a workload that cannot be read, or a workload that does not end."""


class FabricError(RdmaError):
    """A name, setting, fault or field that a fabric does not have or cannot use, or a limit."""


class ClusterError(RdmaError):
    """A Dask cluster that cannot be used, or has ended."""


class SweepError(RdmaError):
    """A sweep with more combinations than are supported."""


class FuzzError(RdmaError):
    """A fuzz case, setup, target or finding that cannot be used."""


class LibraryError(RdmaError):
    """A C library that cannot be built or found."""


def raise_error(error: Exception, *_: object) -> None:
    """Raise ``error``: the default of functions that are called with exceptions of some work."""
    raise error
