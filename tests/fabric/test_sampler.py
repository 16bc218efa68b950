"""Samples of a world: when they are taken, what they hold, and that they change nothing."""

import pytest

from rdmawire.fabric.capture import Meter, Sampler
from rdmawire.fabric.errors import FabricError
from rdmawire.fabric.link import bit_times, duration
from rdmawire.fabric.network import Cable, Network, star
from rdmawire.fabric.simulator import Simulator
from rdmawire.units import gbps, us
from tests.fabric.talker import Talker, frames_of, mac_of

CABLE = Cable(us(1), gbps(10))
FRAMES = 100


def test_samples_are_taken_every_so_often_up_to_the_end() -> None:
    simulator = Simulator()
    simulator.run(until=us(3))
    sampler = Sampler(simulator, us(2))
    seen = sampler.watch(lambda: simulator.now)
    sampler.begin(until=us(9))
    simulator.run()
    assert sampler.times == seen == [us(5), us(7), us(9)]
    assert simulator.now == us(9)


def test_a_rate_is_what_was_added_since_the_last_sample() -> None:
    simulator, octets = Simulator(), [0]
    sampler = Sampler(simulator, us(1))
    rates = sampler.rate(lambda: octets[0])
    for time, more in ((us(0.5), 125), (us(2.2), 250), (us(2.4), 125)):
        simulator.call_at(time, lambda more=more: octets.append(octets.pop() + more))  # type: ignore[misc]
    sampler.begin(until=us(4))
    simulator.run()
    assert rates == [gbps(1), 0, gbps(3), 0]


def talked(*, sampled: bool) -> tuple[Network, list[float], list[float], dict[str, Talker]]:
    """Two hosts talk to a third at once; the queue to it and the rate of one of them."""
    network, machines = Network(), {f"h{n}": Talker(n) for n in range(1, 4)}
    star(network, machines, CABLE)
    for number in (1, 2):
        machines[f"h{number}"].frames.extend(frames_of(number, 3, FRAMES))
    port, meter, sampler = network.ports["s1:h3"], Meter(), Sampler(network.simulator, us(10))
    queue = sampler.watch(lambda: port.egress.octets[0])
    rate = sampler.rate(lambda: meter.octets[mac_of(1)])
    if sampled:
        network.tap("s1:h3", meter)
        sampler.begin(until=us(300))
    network.simulator.run()
    return network, queue, rate, machines


def test_two_senders_share_a_port_and_its_queue_grows_and_drains() -> None:
    _, queue, rate, _ = talked(sampled=True)
    length = 2 * FRAMES * duration(bit_times(1058), gbps(10))
    assert max(queue) > 0.4 * FRAMES * 1058
    assert queue[-1] == 0
    assert sum(rate) * us(10) == pytest.approx(FRAMES * 1058 * 8 * 1e9)
    full = rate[2 : length // us(10) - 2]
    assert len(full) > 10
    assert all(gbps(4) < one < gbps(6) for one in full)


def test_who_is_sampled_does_what_it_would_do_alone() -> None:
    heard = [[t.heard for t in talked(sampled=sampled)[3].values()] for sampled in (True, False)]
    assert heard[0] == heard[1]


def test_samples_that_never_move_on_are_refused() -> None:
    for every in (None, "x", 1.5, -1, 0):
        with pytest.raises(FabricError, match=r"Sampler.every: .* is not a number of nanoseconds"):
            Sampler(Simulator(), every)  # type: ignore[arg-type]
