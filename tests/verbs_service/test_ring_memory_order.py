"""The order of loads and stores in shared memory, on processors that have none of their own."""

from pathlib import Path

import pytest

from rdmawire.verbs_service import ring
from rdmawire.verbs_service.protocol import HEAD, PRODUCED, RING_HEADER, TAIL
from rdmawire.verbs_service.ring import WorkRing
from tests.verbs_service.client import WRITE
from tests.verbs_service.running import connected, running


class Log:
    """Counters that note each access, and each fence between."""

    def __init__(self, words: memoryview) -> None:
        self.words = words
        self.entries: list[str] = []

    def fence(self) -> None:
        self.entries.append("fence")

    def __getitem__(self, word: int) -> int:
        self.entries.append(f"load {8 * word}")
        return self.words[word]

    def __setitem__(self, word: int, value: int) -> None:
        self.entries.append(f"store {8 * word}")
        self.words[word] = value


def test_counters_of_a_work_ring_have_fences_behind_loads_and_before_stores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = WorkRing()
    log = Log(work._words)
    monkeypatch.setattr(ring, "_ORDERED", False)
    monkeypatch.setattr(ring, "fence", log.fence)
    work._words = log  # type: ignore[assignment]
    log.words[HEAD // 8] = 64
    assert work.ready() == (RING_HEADER, 64)
    work.taken(64)
    assert log.entries == [f"load {HEAD}", "fence", "fence", f"store {TAIL}"]
    work._words = log.words
    work.close()


def test_completions_are_visible_before_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole service runs like that, too."""
    monkeypatch.setattr(ring, "_ORDERED", False)
    with running(tmp_path) as service:
        one, other = connected(service)
        (made,) = (
            cq
            for cq in service.server.devices[0].nic.device.cqs.values()
            if isinstance(cq, ring.CompletionRing)
        )
        log = Log(made._words)
        made._words = log  # type: ignore[assignment]
        monkeypatch.setattr(ring, "fence", log.fence)
        sink = other.client.buffer(64)
        place = {"remote_address": sink.memory.address, "rkey": sink.rkey}
        for _ in range(20):
            one.client.send_inline(one.qp, b"data", opcode=WRITE, **place)
        assert {done.status for done in one.cq.wait(20)} == {0}
        made._words = log.words
        stores = [at for at, entry in enumerate(log.entries) if entry == f"store {PRODUCED}"]
        assert stores
        assert all(log.entries[at - 1] == "fence" for at in stores)
