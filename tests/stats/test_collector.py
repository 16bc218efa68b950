"""Statistics of whole captures are those of the plain model, and of what is known of captures."""

import random
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from rdmawire.errors import CaptureError
from rdmawire.stats import Statistics
from rdmawire.stats import collector as statistics
from tests.captures import EVERY, each_capture
from tests.dissect.mutation import COUNTS, SEED, mutated
from tests.stats import model
from tests.stats.samples import random_requests, write


def counted(path: Path) -> Statistics:
    """All that stands before damage."""
    found = Statistics()
    with suppress(CaptureError):
        found.read(path)
    return found


def check(path: Path) -> None:
    found, wanted = counted(path), model.flows(path)
    pairs = found.addresses.pairs
    keys = [(*pairs[key.pair], key.destination, key.source) for key in found.flows.keys]
    assert keys == list(wanted)
    for number, flow in enumerate(wanted.values()):
        check_counts(found, number, flow)
        check_sequences(found, number, flow)


def check_counts(counts: Statistics, number: int, flow: model.Flow) -> None:
    flows = counts.flows
    found = {name: int(each[number]) for name, each in flows.counts.items()}
    assert found["frames"] == flow.frames
    assert found["bytes"] == flow.bytes
    assert found["payload"] == flow.payload
    assert found["requests"] + found["datagrams"] == len(flow.requests)
    assert found["responses"] == len(flow.responses)
    assert (found["acks"], found["cnps"], found["marked"]) == (flow.acks, flow.cnps, flow.marked)
    ends = {name: int(each[number]) for name, each in flows.psns.items()}
    assert ends == {
        f"{end}_{of}": psns[at] if psns else -1
        for end, at in (("first", 0), ("last", -1))
        for of, psns in (("request", flow.requests), ("response", flow.responses))
    }
    syndromes = {code: n for (own, code), n in flows.syndromes.items() if own == number}
    assert syndromes == flow.syndromes
    assert flows.path_mtu[number] == flow.path_mtu
    assert flows.largest[number] == flow.largest
    assert flows.services[number] == sum(1 << service for service in flow.services)


def check_sequences(counts: Statistics, number: int, flow: model.Flow) -> None:
    for wanted in flow.sequences:
        found = counts.requests.counts(number, wanted.mtu, 0)
        assert Counter(found) == wanted.counts, wanted.mtu


@each_capture()
def test_counts_are_those_of_the_plain_model(path: Path) -> None:
    check(path)


@pytest.mark.parametrize("count", COUNTS)
def test_counts_of_damaged_captures(count: int, tmp_path: Path) -> None:
    path = tmp_path / "mutated.pcap"
    for _ in mutated(EVERY, 9000, path, count):
        check(path)


@pytest.mark.parametrize("count", COUNTS)
def test_counts_of_random_requests(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lost, late, repeated and reading ones, cut into pieces anywhere."""
    path = tmp_path / "random.pcap"
    for seed in range(SEED, SEED + count // 3):
        chance = random.Random(seed)
        write(path, random_requests(chance, chance.choice([5, 50, 400])))
        monkeypatch.setattr(statistics, "_MAX_ROWS", chance.choice([1, 2, 7, 64, 1 << 17]))
        print(f"RDMAWIRE_TEST_SEED={seed}")
        check(path)
