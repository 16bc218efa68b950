"""The exceptions of rdmawire: four families, one root.

A reaction to a peer is not an exception but a NAK and a completion; these are for octets that
mean nothing (:class:`WireError`), for files (:class:`CaptureError`), for memory accesses
(:class:`MemoryFault`) and for callers of the verbs (:class:`VerbsError`).
"""


class RdmaError(Exception):
    """Root of all errors that rdmawire raises on purpose."""


class WireError(RdmaError):
    """Octets, or values for octets, that the standard gives no meaning.

    ``offset`` is where in the given buffer the trouble stands (octets from its start), or
    ``None`` where there is no place to point at, as when a value does not fit its field.
    """

    def __init__(self, reason: str, offset: int | None = None) -> None:
        super().__init__(reason if offset is None else f"{reason} (at octet {offset})")
        self.reason = reason
        self.offset = offset


class CaptureError(RdmaError):
    """A capture file that is damaged, unknown or cannot be read or written.

    ``offset`` is where in the uncompressed file the trouble stands, in octets, or ``None``.
    """

    def __init__(self, reason: str, offset: int | None = None) -> None:
        super().__init__(reason if offset is None else f"{reason} (at octet {offset})")
        self.reason = reason
        self.offset = offset


class MemoryFault(RdmaError):
    """An access that the emulated memory refuses."""


class VerbsError(RdmaError):
    """A verb called with what it does not allow."""
