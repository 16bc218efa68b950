"""The calls of the connection manager, as a client sends them: refusals, and what is freed."""

import os
from collections.abc import Iterator
from errno import EADDRINUSE, EINVAL, ENODATA, EPROTO
from pathlib import Path
from random import Random

import pytest

from rdmawire.errors import VerbsError
from rdmawire.ib.cm import PortSpace
from rdmawire.verbs.ah import mapped
from rdmawire.verbs_service.attributes import gid_words
from rdmawire.verbs_service.protocol import CALLS, CONN_PARAM, PRIVATE_DATA
from tests.verbs_service.client import Connection, wait_until
from tests.verbs_service.running import Service, descriptors, running

CM_CALLS = [call for call in CALLS if call.name.startswith("cm_")]
TCP, RC = PortSpace.TCP, 2
FIRST, SECOND = (gid_words(mapped(bytes((10, 0, 0, last)))) for last in (1, 2))
NOTHING_SAID = (0,) * (len(CONN_PARAM) + len(PRIVATE_DATA))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with running(tmp_path) as found:
        yield found


class CmClient(Connection):
    """A client with an event channel."""

    def __init__(self, service: Service) -> None:
        super().__init__(service.path)
        (self.channel,), (self.fd,) = self.call_for_fds("cm_create_channel")

    def new_id(self) -> int:
        """A new id of the channel."""
        (made,) = self.call("cm_create_id", self.channel, TCP, RC)
        return made

    def event(self) -> list[int]:
        """Wait for an event, and return its first values: type, status, id, listener."""
        os.read(self.fd, 1)
        return self.call("cm_get_event", self.channel)[:4]

    def resolved(self, to: tuple[int, int] = SECOND, port: int = 7) -> int:
        """An id with an address and a route."""
        one = self.new_id()
        self.call("cm_resolve_addr", one, 0, 0, 0, 0, 4, *to, port)
        self.call("cm_resolve_route", one)
        assert [self.event()[0], self.event()[0]] == [0, 2]
        return one

    def close(self) -> None:
        super().close()
        os.close(self.fd)


def refusal(client: Connection, name: str, *arguments: int) -> int:
    """The errno of a call that is refused."""
    with pytest.raises(VerbsError) as caught:
        client.call(name, *arguments)
    return caught.value.errno


def test_handles_of_nothing_are_refused(service: Service) -> None:
    client = CmClient(service)
    for call in CM_CALLS:
        if call.request:
            handles = {0, 99, (1 << 64) - 1} | ({client.channel} if "id" in call.request else set())
            rest = (0,) * (len(call.request) - 1)
            assert {refusal(client, call.name, one, *rest) for one in handles} == {EINVAL}
    client.close()


def test_calls_come_after_hello(service: Service) -> None:
    client = Connection(service.path, greet=False)
    assert refusal(client, "cm_create_channel") == EPROTO
    client.close()


def test_ids_of_another_process_are_unknown(service: Service) -> None:
    one, other = CmClient(service), CmClient(service)
    assert refusal(other, "cm_listen", one.new_id(), 0) == EINVAL
    assert refusal(other, "cm_create_id", one.channel, TCP, RC) == EINVAL
    one.close()
    other.close()


@pytest.mark.parametrize(("space", "kind"), [(0, RC), (0x107, RC), (TCP, 0), (TCP, 99)], ids=str)
def test_port_spaces_and_types_are_checked(service: Service, space: int, kind: int) -> None:
    client = CmClient(service)
    assert refusal(client, "cm_create_id", client.channel, space, kind) == EINVAL
    client.close()


@pytest.mark.parametrize(
    ("family", "gid", "port"), [(0, FIRST, 1), (6, FIRST, 1), (4, (0, 0), 1), (4, FIRST, 1 << 16)]
)
def test_addresses_are_checked(
    service: Service, family: int, gid: tuple[int, int], port: int
) -> None:
    client = CmClient(service)
    assert refusal(client, "cm_bind", client.new_id(), family, *gid, port) == EINVAL
    client.close()


def test_calls_need_what_goes_before_them(service: Service) -> None:
    client = CmClient(service)
    one = client.new_id()
    for name in ("cm_resolve_route", "cm_establish", "cm_disconnect"):
        assert refusal(client, name, one) == EINVAL
    assert refusal(client, "cm_connect", one, *NOTHING_SAID) == EINVAL
    assert refusal(client, "cm_accept", one, *NOTHING_SAID) == EINVAL
    assert refusal(client, "cm_init_qp_attr", one, 1) == EINVAL
    assert refusal(client, "cm_get_event", client.channel) == ENODATA
    assert refusal(client, "cm_destroy_channel", client.channel) == EINVAL
    resolved = client.resolved()
    assert refusal(client, "cm_connect", resolved, *NOTHING_SAID) == EINVAL  # no number of one
    assert refusal(client, "cm_init_qp_attr", resolved, 2) == EINVAL  # nothing of a peer
    assert refusal(client, "cm_init_qp_attr", resolved, 6) == EINVAL
    client.close()


def test_a_queue_pair_may_be_another_devices(service: Service) -> None:
    client = CmClient(service)
    one = client.resolved()
    words = [*NOTHING_SAID]
    words[len(CONN_PARAM) - 1] = 0x1234
    client.call("cm_connect", one, *words)
    assert client.event()[:3] == [8, 8, one]  # rejected: no such service
    client.close()


def test_private_data_has_a_limit(service: Service) -> None:
    client = CmClient(service)
    context = service.connect()
    qp = context.create_qp(context.create_cq())
    words = [*NOTHING_SAID]
    words[len(CONN_PARAM) - 1] = qp.number
    one = client.resolved()
    for length in (57, 225, 1 << 40):  # room for 56 bytes, and for 224 in a message
        words[len(CONN_PARAM)] = length
        assert refusal(client, "cm_connect", one, *words) == EINVAL
    words[len(CONN_PARAM)] = 56
    client.call("cm_connect", one, *words)
    assert client.event()[:3] == [8, 8, one]  # rejected: no such service
    context.close()
    client.close()


def test_ports_and_descriptors_of_a_client_that_is_gone_are_free(service: Service) -> None:
    before = descriptors()
    client = CmClient(service)
    listener = client.new_id()
    client.call("cm_bind", listener, 4, *SECOND, 7)
    client.call("cm_listen", listener, 0)
    other = CmClient(service)
    late = other.new_id()
    assert refusal(other, "cm_bind", late, 4, *SECOND, 7) == EADDRINUSE
    client.close()
    wait_until(lambda: not _refused(other, "cm_bind", late, 4, *SECOND, 7))
    other.close()
    wait_until(lambda: descriptors() <= before)
    assert not service.server.cm.connection_count


def _refused(client: Connection, name: str, *arguments: int) -> bool:
    try:
        client.call(name, *arguments)
    except VerbsError:
        return True
    return False


def test_any_arguments_are_answered(service: Service) -> None:
    """A client that sends nonsense gets errors, and the service serves others."""
    random = Random(1)
    edges = (0, 1, 2, 3, 4, 6, 7, 0x106, 0x111, 0xFFFF, 1 << 16, 1 << 32, 1 << 63, (1 << 64) - 1)
    client = CmClient(service)
    ids = [client.new_id() for _ in range(3)] + [client.resolved(), client.channel]
    for _ in range(1500):
        call = random.choice(CM_CALLS)
        words = [random.choice(edges) for _ in call.request]
        if words and random.random() < 0.8:
            words[0] = random.choice(ids)
        if call.reply_fds:
            continue
        _refused(client, call.name, *words)
    client.close()
    other = CmClient(service)
    other.resolved()
    other.close()
