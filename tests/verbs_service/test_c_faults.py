"""The C library when its service ends or answers nonsense: programs go on, or get an error."""

import os
import random
import socket
import subprocess
import threading
from array import array
from contextlib import suppress
from pathlib import Path

import pytest

from rdmawire.verbs_service.protocol import PRODUCED, RING_HEADER, TAIL
from tests.verbs_service.c_programs import environment, program
from tests.verbs_service.fake_service import ENTRIES, FakeConnection, FakeService
from tests.waiting import HANG, wait_until

SANITIZERS = ("address", "undefined")


@pytest.mark.parametrize("scenario", ["service_ends", "poll_notices", "full_ring"])
def test_the_end_of_the_service_flushes_work_and_fails_calls(tmp_path: Path, scenario: str) -> None:
    service = FakeService(tmp_path / "verbs.sock")
    path = program("walk", *SANITIZERS)
    running = subprocess.Popen(
        [path, scenario],
        env=environment(path.parent, service.path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "posted\n"
    service.end_connections()
    _, said = running.communicate(timeout=HANG)
    service.close()
    assert running.returncode == 0, said
    assert "fake: the service is gone" in said


class _HostileConnection(FakeConnection):
    """Follows the protocol at first, and then breaks it in ways that a seed chooses."""

    def __init__(self, connected: socket.socket, seed: int) -> None:
        self.random = random.Random(seed)
        self.rate = self.random.choice((0.002, 0.01, 0.05, 0.2))
        self.loose: list[int] = []
        super().__init__(connected)

    def answer(self, data: bytes) -> bool:
        self._disturb_rings()
        if self.random.random() < self.rate / 4:
            return False
        return super().answer(data)

    def reply(self, words: tuple[int, ...], fds: list[int]) -> None:
        if self.random.random() < self.rate:
            words = self._other_words(words)
        if self.random.random() < self.rate:
            fds = self._other_fds(fds)
        super().reply(words, fds)

    def _number(self) -> int:
        edges = (0, 1, 2, 3, 17, 4096, 1 << 20, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1)
        return self.random.choice(edges)

    def _other_words(self, words: tuple[int, ...]) -> tuple[int, ...]:
        """Other values, another error, or another length."""
        changed = list(words)
        match self.random.randrange(4):
            case 0:
                changed[0] = self._number()
            case 1:
                del changed[self.random.randrange(len(changed)) :]
            case 2:
                changed += [self._number()] * self.random.choice((1, 70))
            case _:
                for _ in range(self.random.randrange(1, 4)):
                    changed[self.random.randrange(1, 80) % len(changed)] = self._number()
        return tuple(changed)

    def _other_fds(self, fds: list[int]) -> list[int]:
        """One less, one more, small memory in place of the right one, or one that may shrink."""
        match self.random.randrange(4):
            case 0:
                return fds[:-1]
            case 1:
                return [*fds, 0]
            case 2:
                loose = os.memfd_create("loose")
                os.ftruncate(loose, 16 << 20)
                self.kept.append(loose)
                self.loose.append(loose)
                return [loose] * len(fds)
            case _:
                small = os.memfd_create("small")
                self.kept.append(small)
                return [small] * len(fds)

    def _disturb_rings(self) -> None:
        """Write counters and completions that cannot be, and take memory away."""
        for memory in self.loose:
            os.ftruncate(memory, 0)
        for name, memory in self.rings.items():
            if self.random.random() > self.rate:
                continue
            if name == "ring":
                size = 64 * ENTRIES
                os.pwrite(memory, self.random.randbytes(size), RING_HEADER)
                self._write_number(memory, PRODUCED)
            elif name == "work_ring":
                self._write_number(memory, TAIL)
        for fd in self.kept:
            if self.random.random() < self.rate:
                with suppress(OSError):
                    os.write(fd, self.random.randbytes(self.random.choice((3, 8, 16))))

    def _write_number(self, memory: int, offset: int) -> None:
        number = self.random.choice((self.random.randrange(2 * ENTRIES), self._number()))
        os.pwrite(memory, array("Q", [number]).tobytes(), offset)


class _HostileService(FakeService):
    """Breaks the protocol for some connections, then goes away."""

    def __init__(self, path: Path, seed: int, connections: int) -> None:
        self.seed = seed * 1000
        self.left = connections
        self.ended = threading.Event()
        super().__init__(path)

    def connection(self, connected: socket.socket) -> FakeConnection:
        self.seed += 1
        self.left -= 1
        if self.left == 0:
            self.ended.set()
        return _HostileConnection(connected, self.seed)


@pytest.mark.parametrize("name", ["walk", "cm_walk"])
@pytest.mark.parametrize(
    "seed",
    [
        0,
        542,  # a status that has no negative
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8)),
    ],
)
def test_nonsense_of_a_service_harms_no_program(tmp_path: Path, seed: int, name: str) -> None:
    service = _HostileService(tmp_path / "verbs.sock", seed, connections=200)
    path = program(name, *SANITIZERS)
    running = subprocess.Popen(
        [path, "invalid_replies"],
        env={**environment(path.parent, service.path), "RDMAWIRE_TRACE": "0"},
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: service.ended.is_set() or running.poll() is not None)
    service.close()
    _, said = running.communicate(timeout=HANG)
    assert running.returncode == 0, said


def test_a_service_of_another_version_is_refused(tmp_path: Path) -> None:
    class Old(FakeConnection):
        def reply(self, words: tuple[int, ...], fds: list[int]) -> None:
            super().reply((71,), [])  # EPROTO

    class OldService(FakeService):
        def connection(self, connected: socket.socket) -> FakeConnection:
            return Old(connected)

    service = OldService(tmp_path / "verbs.sock")
    path = program("walk")
    done = subprocess.run(
        [path, "service_ends"],
        env=environment(path.parent, service.path),
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    service.close()
    assert done.returncode == 1
    assert "the service is of another version of rdmawire" in done.stderr
