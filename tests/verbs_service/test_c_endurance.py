"""Programs that come and go, or are killed at each of their calls: right data, and nothing is left.

The same runs for minutes: ``python -m tools.acceptance --only endurance --only killed``.
"""

import gc
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from threading import active_count
from typing import Final

import pytest

from rdmawire.ib import QueuePair
from rdmawire.ib.cm import CMSettings
from rdmawire.verbs_service import network_of, read_counters
from tests.verbs_service.c_programs import environment, program, run
from tests.verbs_service.running import Service, descriptors, running
from tests.waiting import HANG, wait_until

pytestmark = pytest.mark.slow

SANITIZERS: Final = ("address", "undefined")
PROGRAMS: Final = 5
MESSAGES: Final = 300
DISORDER: Final = "loss=0.001,duplicate=0.001,reorder=0.01,seed=1"
STREAMED: Final = 8192
"""Messages of the program that sends small ones, a multiple of its batch."""
CALLS: Final = 29
"""Calls of the libraries that a client of ``mortal`` makes: one more, and it ends in order."""
_OWN_MODULES: Final = ("rdmawire.verbs_service", "rdmawire.memory")
"""Modules whose objects belong to programs: they have no caches."""
PATIENT: Final = CMSettings(packet_life=13)
"""Retries are exceeded in a fifth of a second: soon, but not while the service waits for a core."""


def held() -> tuple[int, int, int, Counter[str]]:
    """Descriptors, threads, mappings of shared memory, and objects that programs made."""
    gc.collect()
    kinds = Counter(type(thing) for thing in gc.get_objects())
    own = {kind.__qualname__: count for kind, count in kinds.items() if _is_own(kind)}
    mappings = Path("/proc/self/maps").read_text().count("/memfd:rdmawire")
    return descriptors(), active_count(), mappings, Counter(own)


def _is_own(kind: type) -> bool:
    """Whether programs make objects of this kind. Members of enumerations are made once."""
    is_own = kind is QueuePair or str(kind.__module__).startswith(_OWN_MODULES)
    return is_own and not issubclass(kind, Enum)


@contextmanager
def nothing_left() -> Iterator[None]:
    """Check that what programs made inside is gone after they are.

    What earlier tests left may go meanwhile.
    """
    *numbers, objects = held()
    yield

    def is_gone() -> bool:
        *numbers_now, objects_now = held()
        fewer = all(now <= before for now, before in zip(numbers_now, numbers, strict=True))
        return fewer and objects_now <= objects

    wait_until(is_gone)


@pytest.mark.parametrize("network", ["", DISORDER], ids=["direct", "disordered"])
def test_small_messages_without_a_break(network: str, tmp_path: Path) -> None:
    with running(tmp_path, network_of(network, 2)[0]) as service, nothing_left():
        done = run(program("stream", *SANITIZERS), service.path, "1", str(STREAMED))
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{STREAMED} messages, 0 lost\n"
    counters = service.server.devices[1].nic.counters
    assert not network or (counters.out_of_sequence and counters.duplicate_request)


@pytest.mark.parametrize("network", ["", "loss=0.001,seed=1"], ids=["direct", "lossy"])
def test_programs_that_come_and_go(network: str, tmp_path: Path) -> None:
    with running(tmp_path, network_of(network, 2)[0]) as service, nothing_left():
        for seed in range(PROGRAMS):
            arguments = str(seed), str(MESSAGES), str(int(bool(network)))
            done = run(program("endurance", *SANITIZERS), service.path, *arguments)
            assert done.returncode == 0, done.stderr
            assert done.stdout.startswith(f"{MESSAGES} messages, ")
            assert network or done.stdout.endswith(" 0 lost\n")


@contextmanager
def server_of(service: Service) -> Iterator["subprocess.Popen[str]"]:
    """A server that writes to each client until it leaves, or its own retries are exceeded."""
    path = program("mortal", *SANITIZERS)
    with subprocess.Popen(
        [path, "serve", "7471"],
        env=environment(path.parent, service.path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "listening\n"
            yield server
        finally:
            server.kill()


def test_clients_that_are_killed_before_each_of_their_calls(tmp_path: Path) -> None:
    client = program("mortal", *SANITIZERS)
    with running(tmp_path, cm_settings=PATIENT) as service, nothing_left():
        with server_of(service) as server:
            for calls in range(1, CALLS + 2):
                done = run(client, service.path, "connect", "10.0.0.1", "7471", "1", str(calls))
                expected = 0 if calls > CALLS else -signal.SIGKILL
                assert done.returncode == expected, done.stderr
            wait_until(lambda: not any(one["qps"] for one in read_counters(service.path).values()))
            server.terminate()
            said, errors = server.communicate(timeout=HANG)
        assert server.returncode == 0, errors
        established, orderly, exceeded, failed, messages = map(int, re.findall(r"\d+", said))
        assert established == orderly + exceeded
        assert min(orderly, exceeded, failed, messages) > 0, said
