"""Run a scenario and check what it expects.

::

    outcome = play(scenario, capture="out.pcapng")
    for failure in outcome.failures:
        print(failure.text(scenario.source))
"""

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from rdmawire.capture.io import AnyPath
from rdmawire.decode import PROTOCOLS, Protocols
from rdmawire.errors import FabricError
from rdmawire.fabric.capture import CaptureTap
from rdmawire.fabric.simulator import SimulationLimit
from rdmawire.ib.rules import Rules
from rdmawire.terminal import quote
from rdmawire.traffic.scenario.document import Failure, Hint, Mark
from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.runner.actions import Runner
from rdmawire.traffic.scenario.runner.expectations import CounterReader, ExpectationWatcher
from rdmawire.traffic.scenario.runner.observer import Observer
from rdmawire.traffic.scenario.runner.posted_work import Progress, StepRun
from rdmawire.traffic.scenario.runner.testbed import Testbed
from rdmawire.traffic.scenario.runner.verdict import FinishedRun, Tracer, unused_faults, verdict
from rdmawire.traffic.summary import TrafficSummary, summarise
from rdmawire.validate import check_type


class PortCounts(NamedTuple):
    """Counters of a switch port, summed over its priorities.

    - ``marks``: frames marked with CE.
    - ``drops``: frames discarded for lack of room.
    - ``stops``: pauses that the port requested.
    - ``pauses``: how often the port was paused, ``paused_ns`` the total time.
    """

    marks: int
    drops: int
    stops: int
    pauses: int
    paused_ns: int


class StepOutcome(NamedTuple):
    """The result of a step: how often its work was posted, and the count of each completion status.

    ``begun``: whether the step was started. A refused verb counts under its errno.
    """

    name: str
    verb: str
    mark: Mark
    begun: bool
    posted: int
    endings: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a scenario.

    - ``frames``: number of frames that the capture has, or would have.
    - ``hints``: what is odd but no failure, such as faults that matched no frame.
    - ``ports``: counters of switch ports by name (``leaf:server``).
    - ``counters``: every counter that a scenario can expect (``client.retransmits``).
    - ``testbed``: network, hosts and queue pairs in their final state.
    """

    scenario: Scenario
    failures: tuple[Failure, ...]
    steps: tuple[StepOutcome, ...]
    summary: TrafficSummary
    frames: int
    hints: tuple[Hint, ...]
    ports: Mapping[str, PortCounts]
    counters: Mapping[str, int]
    testbed: Testbed

    @property
    def passed(self) -> bool:
        return not self.failures


# Running.


def play(
    scenario: Scenario,
    *,
    capture: AnyPath | None = None,
    points: Iterable[str] = (),
    arrived: bool = False,
    progress: Progress | None = None,
    rules: Mapping[str, Rules] = MappingProxyType({}),
    protocols: Protocols = PROTOCOLS,
) -> Outcome:
    """Run a scenario. The same scenario always gives the same bytes.

    - ``capture``: file for all frames that hosts send, each once.
    - ``points``: names of links, hosts or switch ports; the capture has their frames instead, each
      point as an interface of a pcapng.
    - ``arrived``: capture frames where they arrive, not where they are sent.
    - ``progress``: called with the number of completed work requests, and of all.
    - ``rules``: the rules of some hosts' adapters, by the host's name; a failure may make the
      scenario run a second time, with the same rules.
    - ``protocols``: what carries what in frames, for faults and expectations of own headers.

    Raises ``UnknownPoint`` for a point that does not exist, ``CaptureError`` for a file that cannot
    be written, ``FabricError`` for rules of a host that does not exist and for another
    object than a scenario.
    """
    check_type("scenario", scenario, Scenario, FabricError)
    _check_hosts(scenario, rules)
    wanted = tuple(points)
    make_testbed = partial(Testbed, scenario, rules, protocols)
    testbed = make_testbed()
    with nullcontext() if capture is None else CaptureTap(capture) as keep:
        observer = Observer(testbed, keep, wanted, arrived=arrived)
        played = _run(testbed, observer, progress)
    for machine in testbed.machines.values():
        machine.flush()
    tracer = Tracer(make_testbed, observer.recording.frames, wanted, arrived=arrived)
    return _outcome(played, tracer)


def _check_hosts(scenario: Scenario, rules: Mapping[str, Rules]) -> None:
    known = [host.name for host in scenario.hosts]
    for name in rules:
        if name not in known:
            raise FabricError(f"rules of {quote(name)}: hosts are {', '.join(known)}")


def _run(testbed: Testbed, observer: Observer, progress: Progress | None) -> FinishedRun:
    """Run all steps under observation; a run that does not end within its limits is a failure."""
    testbed.install_faults()
    watching = ExpectationWatcher(testbed, observer)
    player, simulator = Runner(testbed, observer, progress), testbed.network.simulator
    player.start()
    try:
        simulator.run()
    except SimulationLimit as error:
        testbed.failures.insert(0, Failure(Mark(1, 1), "the run", "an end", str(error)))
    player.finish()
    rest = max(player.endings.last, simulator.last_arrival, observer.total.last)
    return FinishedRun(testbed, player, observer, watching, rest)


def _outcome(played: FinishedRun, tracer: Tracer) -> Outcome:
    testbed, observer = played.testbed, played.observer
    counters = CounterReader(testbed, observer).all()
    return Outcome(
        scenario=testbed.scenario,
        failures=tuple(verdict(played, tracer)),
        steps=tuple(_step(run) for run in played.player.runs),
        summary=_summary(played),
        frames=observer.recording.frames,
        hints=tuple(unused_faults(testbed)),
        ports={
            name: PortCounts(*(counters[f"{name}.{what}"] for what in PortCounts._fields))
            for name in testbed.network.ports
        },
        counters=counters,
        testbed=testbed,
    )


def _step(run: StepRun) -> StepOutcome:
    step = run.step
    endings = dict(sorted(run.endings.items()))
    return StepOutcome(step.name, step.verb, step.mark, run.begun, run.posted, endings)


def _summary(played: FinishedRun) -> TrafficSummary:
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
    marks = sum(port.marks.total() for port in network.ports.values())
    marks += sum(faults.hits("mark") for faults in testbed.faults.values())
    return summary._replace(marks=summary.marks + marks)
