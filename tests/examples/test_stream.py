"""A stream counts which of its work is done, and which has failed."""

from examples.stream import Stream, poll_all
from rdmawire.fabric.host import Host
from rdmawire.fabric.network import Cable, Network, place_of, star
from rdmawire.units import us

MESSAGE = 4096


def test_work_that_fails_is_distinguished_from_work_that_is_done() -> None:
    network = Network()
    hosts = {name: Host(place=place_of(number)) for number, name in enumerate(("a", "b"), 1)}
    star(network, hosts, Cable(us(1)))
    stream = Stream(hosts["a"], hosts["b"], message=MESSAGE)
    stream.write(3 * MESSAGE - 1)
    network.simulator.run()
    assert (stream.completed, stream.failed) == (0, 0)
    assert poll_all([stream]) == 0
    assert stream.completed == 3 * MESSAGE
    hosts["b"].nic.destroy_qp(stream.peer)
    stream.write(2 * MESSAGE)
    network.wake("a")
    network.simulator.run()
    assert poll_all([stream]) == 2
    assert stream.completed == 3 * MESSAGE
