"""Clients that send nonsense to the connection manager: they are refused, and harm no other."""

import os
from array import array
from contextlib import suppress
from random import Random

import pytest

from rdmawire.errors import VerbsError
from rdmawire.ib.cm import PortSpace
from rdmawire.verbs.ah import mapped
from rdmawire.verbs_service.attributes import gid_words
from rdmawire.verbs_service.protocol import CALLS, Call
from tests.verbs_service.client import RC, UD, Client, Connection, is_reply
from tests.verbs_service.running import End, Service
from tests.verbs_service.test_server_hostile import works

CM_CALLS = [call for call in CALLS if call.name.startswith("cm_")]
TCP, UDP = PortSpace.TCP, PortSpace.UDP
EDGES = (0, 1, 2, 3, 4, 6, 7, 28, 255, 256, 0xFFFF, 0x10000, (1 << 32) - 1, 1 << 63, (1 << 64) - 1)
GIDS = [
    *(gid_words(mapped(bytes(one))) for one in ((0,) * 4, (127, 0, 0, 1), (10, 0, 0, 1))),
    *(gid_words(mapped(bytes(one))) for one in ((10, 0, 0, 2), (10, 9, 9, 9), (239, 1, 1, 1))),
    *(gid_words(one) for one in (bytes(16), bytes(15) + b"\x01", b"\xff\x0e" + bytes(14))),
]
OFTEN = {
    "cm_create_id": 4,
    "cm_get_event": 16,
    "cm_resolve_addr": 16,
    "cm_resolve_route": 16,
    "cm_connect": 16,
    "cm_accept": 16,
    "cm_establish": 4,
    "cm_create_channel": 0.1,
}
"""Calls that are made more often than others: many are refused in most states."""
CHOICES = {
    "family": (0, 4, 4, 4, 4, 4, 6),
    "port": (0, 7, 7, 7, 8),
    "port_space": (TCP, TCP, UDP, 0x013F, 2),
    "qp_type": (2, 2, 2, 4, 9),
    "private_length": (0, 3, 56, 92, 224, 225),
    "qp_state": range(8),
    "retry_count": range(8),
    "event": (4, 5),
    "backlog": (0, 1, 5000),
    "level": (0, 0, 1),
    "option": range(5),
}
"""Values that calls have, by the ends of their arguments' names."""

WEIGHTS = [0.1 if "destroy" in call.name else OFTEN.get(call.name, 1) for call in CM_CALLS]


class Walker(Connection):
    """A client that makes calls at random, with handles and queue pairs that there are."""

    def __init__(self, service: Service, random: Random, qps: list[int]) -> None:
        super().__init__(service.path)
        self.random = random
        (channel,), (fd,) = self.call_for_fds("cm_create_channel")
        os.close(fd)
        self.handles = {"channel": [channel], "id": [0], "group": [0], "qp_num": [0, *qps]}
        for space, kind in ((TCP, RC), (UDP, UD)):
            (made,) = self.call("cm_create_id", channel, space, kind)
            with suppress(VerbsError):  # the other client has the port
                self.call("cm_bind", made, 4, *GIDS[0], 7)
                self.call("cm_listen", made, 0)

    def step(self) -> None:
        """Make a call."""
        (call,) = self.random.choices(CM_CALLS, WEIGHTS)
        words, fds = self.send_message(array("Q", (call.number, *self._arguments(call))).tobytes())
        for fd in fds:
            os.close(fd)
        assert words, f"{call.name}: the service closed the connection"
        assert is_reply(words, call)
        if not words[0]:
            self._note(call, words[1:])

    def _arguments(self, call: Call) -> list[int]:
        gid = self.random.choice(GIDS)
        return [self._argument(name, gid) for name in call.request]

    def _argument(self, name: str, gid: tuple[int, int]) -> int:
        if self.random.random() < 0.02:
            return self.random.choice(EDGES)
        if name in self.handles:
            return self.random.choice(self.handles[name][-4:])
        if name[-1] in "01" and name[:-1] in {"gid", "src", "dst"}:
            return gid[int(name[-1])]
        for end, values in CHOICES.items():
            if name.endswith(end):
                return self.random.choice(values)
        return self.random.choice((0, 1, 3))

    def _note(self, call: Call, values: list[int]) -> None:
        for name, value in zip(call.reply, values, strict=True):
            if name in self.handles and name != "qp_num" and value:
                self.handles[name].append(value)


@pytest.mark.parametrize("seed", range(12))
def test_any_calls_of_the_connection_manager_are_answered(
    service: Service, pair: tuple[End, End], seed: int
) -> None:
    random = Random(seed)
    contexts = [service.connect(index) for index in range(2)]
    walkers = [Walker(service, random, _queue_pairs(contexts)) for _ in range(2)]
    for _ in range(300):
        random.choice(walkers).step()
    for one in (*walkers, *contexts):
        one.close()
    assert works(pair)


def _queue_pairs(contexts: list[Client]) -> list[int]:
    found = []
    for client in contexts:
        cq = client.create_cq(8)
        found += [client.create_qp(cq, depth=4).number for _ in range(2)]
        found.append(client.create_qp(cq, kind=UD, depth=4).number)
    return found
