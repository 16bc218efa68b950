"""Collective operations of a scenario, on its hosts and its network.

:mod:`rdmawire.gpudirect` does them. It needs NumPy, so it is imported when a scenario has one.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rdmawire.errors import CollectiveError, VerbsError
from rdmawire.fabric.pair import ATTRIBUTES
from rdmawire.traffic.scenario.model.collective import COLLECTIVE_MTU
from rdmawire.traffic.scenario.model.step import StepPlan
from rdmawire.traffic.scenario.runner.endpoint import CONTROLS
from rdmawire.traffic.scenario.runner.posted_work import Deviation, StepRun
from rdmawire.traffic.scenario.runner.testbed import Testbed
from rdmawire.wire.inet import ECN
from rdmawire.wire.management import MTU

if TYPE_CHECKING:
    from rdmawire.gpudirect import CollectiveSpec, HostedCollective, NetSettings, RankAdapter

_ECN_BITS: Final = 2
_EXPECTED: Final = "right results at all ranks"

Ended = Callable[[StepRun, VerbsError | None], None]
"""Called when a step has ended, or was refused."""


class CollectiveSteps:
    """The collective operations of a scenario that have begun."""

    def __init__(self, testbed: Testbed, on_end: Ended) -> None:
        self._testbed = testbed
        self._on_end = on_end
        self._running: dict[StepRun, HostedCollective] = {}

    def begin(self, run: StepRun) -> None:
        """Connect the hosts of a step, and begin its operation."""
        try:
            operation = self._operation(run.step)
        except VerbsError as error:
            self._on_end(run, error)
            return
        self._running[run] = operation
        for adapter in operation.adapters:
            taken = self._testbed.machines[adapter.name].port.on_taken
            taken.append(partial(self._take, run, adapter))
        self._advance(run, operation.start)

    def _take(self, run: StepRun, adapter: "RankAdapter", frame: bytes, _now: int) -> None:
        if run.deviation is None:
            self._advance(run, partial(self._running[run].take, adapter, frame))

    def _advance(self, run: StepRun, advance: Callable[[], None]) -> None:
        """Go on with an operation; end its step when it is done."""
        try:
            advance()
        except CollectiveError as error:
            _fail(run, error)
        else:
            if not run.ended and self._running[run].is_done:
                self._on_end(run, None)

    def finish(self) -> None:
        """Check each operation after the end of the simulation."""
        for run, operation in self._running.items():
            try:
                operation.finish()
            except CollectiveError as error:
                _fail(run, error)

    # Building.

    def _operation(self, step: StepPlan) -> "HostedCollective":
        from rdmawire.gpudirect import HostedCollective, RankAdapter

        values: Mapping[str, Any] = step.values
        hosts = values["among"]
        machines = self._testbed.machines
        adapters = [RankAdapter(name, machines[name].host) for name in hosts]
        spec = _spec(step.verb, values, self._testbed.scenario.seed)
        operation = HostedCollective(spec, self._testbed.network, adapters, names=hosts)
        scheme, parameters = values.get("congestion", (None, {}))
        if scheme is not None:
            self._control(operation, scheme, parameters)
        return operation

    def _control(
        self, operation: "HostedCollective", scheme: str, parameters: Mapping[str, float]
    ) -> None:
        """Let all queue pairs of an operation control congestion."""
        control = CONTROLS[scheme]
        names = {adapter.host: adapter.name for adapter in operation.adapters}
        for connection in operation.connections:
            ends = {
                connection.sender: connection.sending,
                connection.receiver: connection.receiving,
            }
            for host, qps in ends.items():
                rate = self._testbed.network.macs[names[host]].egress.rate
                for qp in qps:
                    host.nic.control_congestion(qp, control.made(scheme, parameters, rate))
                    if control.cnp_interval is not None:
                        host.nic.notify_congestion(qp, control.cnp_interval, None)


def _fail(run: StepRun, error: CollectiveError) -> None:
    """Record the first error of an operation."""
    if run.deviation is None:
        run.deviation = Deviation(_EXPECTED, str(error), None, None, "")


def _spec(verb: str, values: Mapping[str, Any], seed: int) -> "CollectiveSpec":
    from rdmawire.gpudirect import Algorithm, Collective, CollectiveSpec

    hosts = values["among"]
    given = {
        name: values[name] for name in ("size", "protocol", "channels", "dtype") if name in values
    }
    return CollectiveSpec(
        Collective(verb),
        hosts=len(hosts),
        algorithm=Algorithm(values.get("algo", Algorithm.RING.value)),
        root=hosts.index(values.get("root", hosts[0])),
        net=_net(values),
        seed=seed,
        **given,
    )


def _net(values: Mapping[str, Any]) -> "NetSettings":
    from rdmawire.gpudirect import NetSettings

    ecn = ECN.ECT_0 if values.get("ecn") else 0
    attributes = ATTRIBUTES._replace(path_mtu=MTU.of(values.get("mtu", COLLECTIVE_MTU)))
    return NetSettings(
        qps=values.get("qps", 1),
        split=values.get("split", False),
        traffic_class=values.get("dscp", 0) << _ECN_BITS | ecn,
        attributes=attributes._replace(**values.get("attributes", {})),
    )
