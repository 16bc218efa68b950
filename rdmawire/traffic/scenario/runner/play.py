"""What playing a scenario came to: a value."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from rdmawire.capture.io import AnyPath
from rdmawire.fabric.capture import CaptureTap
from rdmawire.fabric.network import Network
from rdmawire.fabric.simulator import SimulationLimit, Tap
from rdmawire.traffic.scenario.hints import Hint
from rdmawire.traffic.scenario.model import Mark, Scenario
from rdmawire.traffic.scenario.runner.counting import CounterReader
from rdmawire.traffic.scenario.runner.expectations import ExpectationWatcher
from rdmawire.traffic.scenario.runner.failure import Failure
from rdmawire.traffic.scenario.runner.observer import Observer
from rdmawire.traffic.scenario.runner.player import Runner
from rdmawire.traffic.scenario.runner.posted_work import Progress, RestClock, StepRun
from rdmawire.traffic.scenario.runner.testbed import Testbed
from rdmawire.traffic.scenario.runner.tracing import Tracer
from rdmawire.traffic.scenario.runner.verdict import FinishedRun, unused_faults, verdict
from rdmawire.traffic.summary import Summary, summarise


class PortCounts(NamedTuple):
    """One port, all priorities together.

    ``marks`` are frames that it marked with CE, ``drops`` those it had no room for. ``stops`` are
    pauses that it asked for, ``pauses`` how often it was stopped itself, for ``paused_ns`` in all.
    """

    marks: int
    drops: int
    stops: int
    pauses: int
    paused_ns: int


def ports_of(network: Network) -> dict[str, PortCounts]:
    """Every port of every switch, by its name (``leaf:server``)."""
    return {
        name: PortCounts(
            port.marks.total(),
            port.drops.total(),
            port.stops.total(),
            sum(port.egress.pauses),
            sum(port.egress.paused_ns),
        )
        for name, port in network.ports.items()
    }


class StepOutcome(NamedTuple):
    """What became of a step: how often it was done, and how that ended, by status.

    ``begun`` says whether its time ever came. Verbs that were refused count by their errno.
    """

    name: str
    verb: str
    mark: Mark
    begun: bool
    posted: int
    endings: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One scenario, played. ``frames`` is how many the capture has, or would have.

    ``hints`` are what was odd about it, though no failure: faults that befell no frame.
    ``ports`` has what switches' ports counted, by their names (``leaf:server``); ``counters`` has
    every counter of which a scenario may expect something (``client.retransmits``).

    ``testbed`` has its network, hosts and queue pairs as they are in the end.
    """

    scenario: Scenario
    failures: tuple[Failure, ...]
    steps: tuple[StepOutcome, ...]
    summary: Summary
    frames: int
    hints: tuple[Hint, ...]
    ports: Mapping[str, PortCounts]
    counters: Mapping[str, int]
    testbed: Testbed

    @property
    def passed(self) -> bool:
        """Whether all came as it was expected."""
        return not self.failures


# Play a scenario: what happens is what it says, and what it expects is checked.

_WHOLE_FILE = Mark(1, 1)


def play(
    scenario: Scenario,
    *,
    capture: AnyPath | None = None,
    points: Iterable[str] = (),
    arrived: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """What becomes of a scenario. The same one gives the same bytes, always.

    ``capture`` is written with all frames that hosts send, each once; or with those of ``points``:
    links, hosts or switches' ports by their names, each an interface of a pcapng. With ``arrived``
    it has what arrives there. ``progress`` is told how much work has ended, of how much.
    ``UnknownPoint`` for a point that there is not, ``CaptureError`` for a file that cannot be
    written.
    """
    wanted = tuple(points)
    testbed = Testbed(scenario)
    with _tap(capture) as keep:
        observer = Observer(testbed, keep, wanted, arrived=arrived)
        player, watching, rest, unsettled = _happen(testbed, observer, progress)
    for machine in testbed.machines.values():
        machine.flush()
    tracer = Tracer(scenario, observer.recording.frames, wanted, arrived=arrived)
    played = FinishedRun(testbed, player, observer, watching, tracer.trace, rest)
    return _outcome(played, unsettled)


@contextmanager
def _tap(capture: AnyPath | None) -> Iterator[Tap | None]:
    if capture is None:
        yield None
    else:
        with CaptureTap(capture) as tap:
            yield tap


class _Ran(NamedTuple):
    """Who played, who watched, when the last of it was done (ns), and whether it had no end."""

    player: Runner
    watching: ExpectationWatcher
    rest: int
    unsettled: tuple[Failure, ...]


def _happen(testbed: Testbed, observer: Observer, progress: Progress | None) -> _Ran:
    """Let all happen that the scenario says, and have it watched."""
    testbed.install_faults()
    watching = ExpectationWatcher(testbed, observer)
    clock = RestClock(testbed.network.simulator, progress)
    player = Runner(testbed, observer, clock.report)
    unsettled = _run(testbed, player)
    return _Ran(player, watching, clock.rest(observer.total), unsettled)


def _run(testbed: Testbed, player: Runner) -> tuple[Failure, ...]:
    """Start, and go on to the end; a run that does not come to rest is a failure of its own."""
    player.start()
    try:
        testbed.network.simulator.run()
    except SimulationLimit as error:
        return (Failure(_WHOLE_FILE, "the run", "an end", str(error)),)
    return ()


def _outcome(played: FinishedRun, unsettled: tuple[Failure, ...]) -> Outcome:
    testbed, observer = played.testbed, played.observer
    return Outcome(
        scenario=testbed.scenario,
        failures=(*unsettled, *verdict(played)),
        steps=tuple(_step(run) for run in played.player.runs),
        summary=_summary(played),
        frames=observer.recording.frames,
        hints=tuple(unused_faults(testbed)),
        ports=ports_of(testbed.network),
        counters=CounterReader(testbed, observer).all(),
        testbed=testbed,
    )


def _step(run: StepRun) -> StepOutcome:
    step = run.step
    endings = dict(sorted(run.endings.items()))
    return StepOutcome(step.name, step.verb, step.mark, run.begun, run.posted, endings)


def _summary(played: FinishedRun) -> Summary:
    testbed, network = played.testbed, played.testbed.network
    lost = sum(faults.lost for faults in testbed.faults.values())
    lost += sum(link.oversized for link in network.links.values())
    lost += sum(sum(port.drops.values()) for port in network.ports.values())
    lost += sum(switch.stranded for switch in network.switches.values())
    summary = summarise(
        played.observer.total,
        [machine.host.nic for machine in testbed.machines.values()],
        played.rest,
        lost=lost,
        failed=played.player.endings.failed,
    )
    return summary._replace(marks=summary.marks + _marks(testbed))


def _marks(testbed: Testbed) -> int:
    """How often frames were marked on their way, by switches and by faults."""
    marks = sum(port.marks.total() for port in testbed.network.ports.values())
    return marks + sum(faults.hits("mark") for faults in testbed.faults.values())
