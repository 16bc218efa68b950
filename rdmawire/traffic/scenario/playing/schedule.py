"""When steps begin: at their time, with the one before them, or when those before them are over.

Whatever leads to more work only notes what is due, and which queue pairs to look at; one loop works
that off, so that thousands of steps in a row take no stack.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import takewhile

from rdmawire.fabric.simulator import Simulator
from rdmawire.traffic.scenario.playing.lane import Lane
from rdmawire.traffic.scenario.playing.work import Run


class Schedule:
    """Steps in their order. ``begin`` begins one, ``pump`` has a queue pair post what it may."""

    def __init__(
        self,
        runs: list[Run],
        simulator: Simulator,
        begin: Callable[[Run], None],
        pump: Callable[[Lane], None],
    ) -> None:
        self.runs = runs
        self._simulator = simulator
        self._begin = begin
        self._pump = pump
        self._due: deque[Run] = deque()
        self._stirred: dict[Lane, None] = {}
        self._settling = False
        self._link()

    def _link(self) -> None:
        """Let steps wait for those that they come after."""
        named = {run.step.name: run for run in self.runs if run.step.name}
        for run in self.runs:
            for name in run.step.after:
                named[name].followers.append(run)
                run.waits += 1

    def start(self) -> None:
        """Begin the first steps, and have the world remember those that have a time."""
        for run in self.runs:
            self._plan(run)
        self.settle()

    def _plan(self, run: Run) -> None:
        """A step that waits for nothing has its time; the first one that says none begins now."""
        if run.step.at is not None and not run.waits:
            self._simulator.call_at(run.step.at, partial(self._begin_now, run))
        elif not run.number and _says_nothing(run):
            self._due.extend(self._with(run))

    def _begin_now(self, run: Run) -> None:
        self._due.extend(self._with(run))
        self.settle()

    def _with(self, run: Run) -> Iterator[Run]:
        """A step, and those behind it that say nothing of when."""
        yield run
        yield from takewhile(_says_nothing, self.runs[run.number + 1 :])

    def stir(self, lanes: Iterable[Lane]) -> None:
        """Look at these queue pairs: there may be something to post."""
        self._stirred.update(dict.fromkeys(lanes))

    def settle(self) -> None:
        """Begin what is due and post what may be posted, until neither leads to more."""
        if self._settling:
            return
        self._settling = True
        while self._stirred or self._due:
            if self._stirred:
                lane = next(iter(self._stirred))
                del self._stirred[lane]
                self._pump(lane)
            else:
                self._begin(self._due.popleft())
        self._settling = False

    def follow(self, run: Run) -> None:
        """A step is over: who waits for that alone begins."""
        for follower in run.followers:
            follower.waits -= 1
            if not follower.waits:
                self._begin_later(follower)

    def _begin_later(self, run: Run) -> None:
        at = run.step.at
        if at is not None and at > self._simulator.now:
            self._simulator.call_at(at, partial(self._begin_now, run))
        else:
            self._due.extend(self._with(run))


def _says_nothing(run: Run) -> bool:
    """Whether a step begins with the one before it."""
    return run.step.at is None and not run.step.after
