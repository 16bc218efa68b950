"""The addresses of a port: what is for it, and what changes with them."""

from rdmawire.fabric.pair import Pair
from rdmawire.nic.address import mapped
from rdmawire.nic.completion import WCStatus
from rdmawire.nic.event import GIDChanged
from rdmawire.nic.unseal import Drop


def test_an_address_that_a_port_lost_is_no_longer_its_own() -> None:
    pair = Pair()
    pair.client.write(b"before", to=pair.server.region)
    pair.drive()
    pair.server.nic.gids = (mapped(bytes((10, 9, 9, 9))),)
    assert pair.server.nic.next_event() == GIDChanged(port=1)
    pair.client.write(b"after", to=pair.server.region)
    pair.drive()
    assert [done.status for done in pair.client.poll()] == [
        WCStatus.SUCCESS,
        WCStatus.RETRY_EXC_ERR,
    ]
    assert pair.server.region.read(6) == b"before"
    assert pair.server.nic.drops[Drop.NOT_MINE] == 8
