"""Messages as work requests: from which memory, to which, by which key."""

from typing import Final

from rdmawire.memory.region import Region
from rdmawire.traffic.generate.blend import ATOMICS, Message
from rdmawire.traffic.generate.memory import Store
from rdmawire.verbs.wr import ATOMIC_SIZE, SendOpcode, SendWR, Sge

WORD: Final = (1 << 64) - 1


class Postman:
    """Makes work of messages between the stores of two hosts.

    ``addend`` is what fetching atomics add. Comparisons compare with it, and so fail but by a
    chance of 2**-64: what stands in a word moves on by the same step in each round.
    """

    def __init__(self, client: Store, server: Store, addend: int) -> None:
        self._client = client
        self._server = server
        self.addend = addend

    def work(self, message: Message) -> SendWR:
        """What is posted for a message; a datagram's way comes on top of it."""
        opcode = message.kind.opcode
        if message.kind in ATOMICS:
            return self._atomic(message)
        if opcode is SendOpcode.RDMA_READ:
            return _transfer(message, self._client.sink, self._server.source)
        return _transfer(message, self._client.source, self._server.sink)

    def _atomic(self, message: Message) -> SendWR:
        sink, words = self._client.sink, self._server.words
        return SendWR(
            message.kind.opcode,
            (Sge(sink.iova, ATOMIC_SIZE, sink.lkey),),
            remote_address=words.iova + ATOMIC_SIZE * message.lane,
            rkey=words.rkey,
            compare_add=self.addend,
            swap=~self.addend & WORD,
        )


def _transfer(message: Message, local: Region, remote: Region) -> SendWR:
    """Octets of one region, and the same of the other."""
    piece = Sge(local.iova + message.offset, message.length, local.lkey)
    return SendWR(
        message.kind.opcode,
        (piece,) if message.length else (),
        remote_address=remote.iova + message.offset,
        rkey=remote.rkey,
        imm_data=message.imm,
    )
