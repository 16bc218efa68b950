"""Queue pairs that connection management names: who sent a REQ, and which REP answers it."""

from rdmawire.stats.address import OTHER, Addresses
from rdmawire.stats.facts import Facts, Hello, Pair
from rdmawire.stats.flow import Key
from rdmawire.stats.pairing import Pairing

_OPEN = 4096
"""Requests whose answers are waited for; of more, the oldest are let go."""


class Introductions:
    """Tells the pairing of flows what CM messages say."""

    def __init__(self, addresses: Addresses, pairing: Pairing) -> None:
        self._addresses = addresses
        self._pairing = pairing
        self._open: dict[tuple[Pair, int], int] = {}

    def add(self, facts: Facts) -> None:
        """Look at one frame."""
        if facts.hello is None:
            return
        if facts.hello.answers:
            self._answer(facts.pair, facts.hello)
        else:
            self._ask(facts.pair, facts.hello)

    def _ask(self, pair: Pair, hello: Hello) -> None:
        self._open[pair, hello.comm_id] = hello.qpn
        if len(self._open) > _OPEN:
            del self._open[next(iter(self._open))]

    def _answer(self, pair: Pair, hello: Hello) -> None:
        asked = Pair(pair.destination, pair.source)
        qpn = self._open.pop((asked, hello.comm_id), None)
        there, back = self._addresses.number(asked), self._addresses.number(pair)
        if qpn is not None and OTHER not in (there, back):
            self._pairing.tell(Key(there, hello.qpn, 0), Key(back, qpn, 0))
