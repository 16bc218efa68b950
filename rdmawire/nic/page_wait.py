"""How a requester waits for pages of its own on-demand regions.

A page that a request is read from, or a response written to, may have to be brought in. The queue
pair waits until it is there, without using a retry, and then sends on; a response that could not be
placed is discarded and requested again. A responder does not wait but answers with an RNR NAK
(:data:`rdmawire.nic.fault.RELIABLE`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rdmawire.nic.device import Device
    from rdmawire.nic.qp import QueuePair


class PageWait:
    """The wait of one queue pair. ``deadline`` is when the pages are there (ns), if it waits.

    ``resend`` says that responses were discarded.
    """

    __slots__ = ("_device", "deadline", "place", "qp", "resend")

    def __init__(self, device: "Device", qp: "QueuePair") -> None:
        self._device = device
        self.qp = qp
        self.deadline: int | None = None
        self.place: int | None = None
        self.resend = False

    def wait(self, ready: int, *, resend: bool = False) -> None:
        """Wait until ``ready`` (ns), or until a later deadline set before."""
        self.resend |= resend
        self._device.page_waits.arm(self, max(ready, self.deadline or 0))

    def stop(self) -> None:
        """Wait for nothing."""
        self.resend = False
        self._device.page_waits.disarm(self)
