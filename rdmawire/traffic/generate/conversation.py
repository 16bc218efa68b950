"""The conversation of adapters, two or many, played round by round."""

from rdmawire.ib.engine import Nic
from rdmawire.traffic.generate import blend
from rdmawire.traffic.generate.ends import Ends, Unfinished
from rdmawire.traffic.generate.losses import Losses
from rdmawire.traffic.generate.order import Order, Verb
from rdmawire.traffic.generate.setup import Setup, Watcher, bth_place
from rdmawire.wire.opcode import Opcode


class Conversation:
    """Adapters on a cable, or round a switch. ``messages`` are those of one round."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self.messages = blend.messages(order)
        self.ends = Ends(order, self.messages)
        marks = 1.0 if order.verb is Verb.CNP else order.marks or 0.0
        self._setup = Setup(order, marks)
        self.world = self._setup.world
        for end in self.ends.hosts:
            self._setup.attach(end.nic, end.mac)
        self.world.run()  # queue pairs that came up are asked once; from now on rounds are alike
        self._done = 0

    @property
    def nics(self) -> tuple[Nic, ...]:
        """All adapters."""
        return tuple(end.nic for end in self.ends.hosts)

    @property
    def sent(self) -> int:
        """Frames that adapters put on their cables."""
        return self._setup.sent

    @property
    def marked(self) -> int:
        """Frames that were marked on their way; of CNPs alone there are none to see."""
        return 0 if self._order.verb is Verb.CNP else self._setup.marked

    def play(self, count: int, losses: Losses, watcher: Watcher) -> None:
        """The first so many messages of a round, until all is answered."""
        if self._order.verb is Verb.CNP:
            watcher = _CnpsOnly(watcher, bth_place(self._order))
        self._setup.watch(losses, watcher)
        self.ends.post(count, self.world.now)
        self._done = -count
        if self._order.marks is None:
            self._rest()
        else:
            self._setup.settle(self._is_done)

    def _rest(self) -> None:
        self._setup.rest()
        if not self._is_done():
            raise Unfinished(f"{-self._done} messages are not done, and nothing goes on")

    def _is_done(self) -> bool:
        self._done += self.ends.poll()
        return not self._done


class _CnpsOnly:
    """Sees what makes CNPs come, and tells of the CNPs alone."""

    def __init__(self, watcher: Watcher, bth: int) -> None:
        self._watcher = watcher
        self._bth = bth
        self.lost = watcher.lost

    def frame(self, frame: bytes, now: int, lost: bool) -> None:
        if frame[self._bth] == Opcode.CNP:
            self._watcher.frame(frame, now, lost)
