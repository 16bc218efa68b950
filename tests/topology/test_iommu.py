"""The IO-TLB against a plain list, and what a host with an IOMMU pays for its misses."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.gpudirect.transfer import TransferPath, TransferReport, TransferSpec, transfer
from rdmawire.topology import (
    IOMMU_SOURCES,
    Bus,
    BusRoute,
    Costs,
    Iommu,
    IommuLimits,
    Machine,
    TranslationCache,
    memory_route,
    peer_route,
    write_time,
)
from rdmawire.traffic.scenario import open_host, play, read_scenario_text, read_topology
from rdmawire.units import SECOND

WALK = Costs().translation_latency
PAGE = 4096
PLAIN = open_host("two-sockets").machine
DIRECT = peer_route(PLAIN, PLAIN.device("mlx5_0"), PLAIN.device("GPU0"))


def host(mode: Iommu = Iommu.TRANSLATED, *, page: int = PAGE, ats: bool = False) -> Machine:
    devices = tuple(replace(one, ats=ats) for one in PLAIN.devices)
    own = replace(PLAIN.settings, iommu=mode, iommu_page=page)
    return replace(PLAIN, settings=own, devices=devices)


def to_memory(machine: Machine) -> tuple[Bus, BusRoute]:
    bus = Bus(machine)
    return bus, bus.route(memory_route(machine, machine.device("mlx5_0"), 0))


def test_every_limit_has_a_source() -> None:
    assert tuple(IOMMU_SOURCES) == IommuLimits._fields


@given(
    st.integers(1, 5), st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5)), max_size=60)
)
def test_the_least_recently_used_page_is_replaced(
    entries: int, lookups: list[tuple[str, int]]
) -> None:
    cache, model = TranslationCache(entries), list[tuple[str, int]]()
    for one in lookups:
        assert cache.lookup(*one) == (one in model)
        model = [*(other for other in model if other != one), one][-entries:]
        assert len(cache) == len(model)


@pytest.mark.parametrize("mode", [Iommu.OFF, Iommu.PASSTHROUGH])
def test_nothing_is_translated_without_an_iommu_that_does(mode: Iommu) -> None:
    bus, route = to_memory(host(mode))
    assert route.write(PAGE, 0, 0) == pytest.approx(write_time(PLAIN, route.route, PAGE))
    assert not any(bus.translations)
    assert not route.is_translated


def test_accesses_below_a_switch_are_not_translated() -> None:
    bus = Bus(host())
    assert bus.route(DIRECT).write(PAGE, 0, 0) == Bus(PLAIN).route(DIRECT).write(PAGE, 0, 0)
    assert not any(bus.translations)


def test_a_miss_costs_a_walk_and_a_hit_nothing() -> None:
    for read in (False, True):
        bus, route = to_memory(host())
        plain = to_memory(PLAIN)[1]
        times: list[float] = []
        for one in (plain, route, route):
            access = one.read if read else one.write
            times.append(access(64, 0 if not times else 10_000 * len(times), 128))
        first, missed, hit = times
        assert missed - 10_000 - first == pytest.approx(WALK, abs=3)
        assert hit - 20_000 == pytest.approx(first)
        assert bus.translations[:2] == (1, 1)
        assert bus.translations.waited == pytest.approx(WALK)


@pytest.mark.parametrize(("pages", "again"), [(64, 0), (65, 65), (128, 128)])
def test_the_cache_holds_256_kib_in_pages_of_4_kib(pages: int, again: int) -> None:
    """Neugebauer et al., SIGCOMM 2018, 6.5: beyond it each access in turn is a miss."""
    bus, route = to_memory(host())
    for _ in range(2):
        for page in range(pages):
            route.write(64, 0, page * PAGE)
    assert bus.translations.misses == pages + again
    large, wide = to_memory(host(page=1 << 21))
    for page in range(pages):
        wide.write(64, 0, page * PAGE)
    assert large.translations.misses == 1


def test_misses_take_two_thirds_of_the_rate_of_small_reads() -> None:
    """Reads of 64 bytes: almost 70% less, Neugebauer et al., SIGCOMM 2018, 6.5."""
    count = 2000

    def rate(pages: int) -> float:
        _, route = to_memory(host())
        for page in range(pages):
            route.read(64, 0, page * PAGE)
        begin = 1e6
        ends = [route.read(64, begin, number % pages * PAGE) for number in range(count)]
        return count / (max(ends) - begin) * SECOND

    assert rate(128) == pytest.approx(6 / WALK * SECOND, rel=0.01)  # 9.3 Gbit/s
    assert 1 - rate(128) * 64 / (32e9 / 8) == pytest.approx(0.7, abs=0.02)


def test_requests_of_a_large_access_are_hits_but_for_the_first_of_a_page() -> None:
    bus, route = to_memory(host())
    route.write(3 * PAGE, 0, PAGE // 2)
    assert bus.translations[:2] == (3 * 16 - 4, 4)
    route.read(PAGE, 0, PAGE // 2)
    assert bus.translations[:2] == (3 * 16 - 4 + 8, 4)


def test_an_access_without_an_address_follows_the_last_one() -> None:
    bus, route = to_memory(host())
    for _ in range(32):
        route.write(PAGE // 2, 0)
    assert bus.translations.misses == 16


def test_ats_asks_once_and_then_nobody() -> None:
    bus, route = to_memory(host(ats=True))
    trip = 2 * route.latency
    first = route.write(64, 0, 0)
    assert first - write_time(PLAIN, route.route, 64) == pytest.approx(WALK + trip, abs=3)
    for page in range(100):
        route.write(64, 0, page * PAGE)
    before = bus.translations
    for page in range(100):
        route.write(64, 0, page * PAGE)
    after = bus.translations
    assert after.ats_hits - before.ats_hits == 100
    assert after._replace(ats_hits=0) == before._replace(ats_hits=0)


# Transfers and scenarios.


def bounce(machine: Machine, size: int, repeat: int = 1) -> TransferReport:
    return transfer(TransferSpec(machine, "GPU0", "GPU0", TransferPath.BOUNCE, size, repeat=repeat))


def test_a_small_bounce_waits_for_three_walks_and_a_later_one_for_none() -> None:
    """The fourth would be that of the payload, which is inline."""
    plain, translated = bounce(PLAIN, 8), bounce(host(), 8, repeat=2)
    assert translated.duration - plain.duration == pytest.approx(3 * WALK, abs=5)
    assert translated.later == pytest.approx(plain.duration, abs=5)
    assert translated.translations.misses == 3
    assert not any(plain.translations)


def test_large_pages_of_the_iommu_save_the_rate() -> None:
    dgx = open_host("dgx-h200").machine
    size = 1 << 22
    times = {}
    for name, mode, page in (
        ("off", Iommu.OFF, PAGE),
        ("small", Iommu.TRANSLATED, PAGE),
        ("large", Iommu.TRANSLATED, 1 << 21),
    ):
        own = replace(dgx.settings, iommu=mode, iommu_page=page)
        spec = TransferSpec(replace(dgx, settings=own), "GPU0", "GPU1", TransferPath.BOUNCE, size)
        times[name] = transfer(spec).duration
    assert times["large"] < 1.02 * times["off"]
    assert times["small"] > 1.2 * times["off"]


TEXT = """
name: WRITEs to host memory behind an IOMMU
hosts:
  client: {memory: {source: {size: SIZE, fill: count}}}
  server: {topology: {host: two-sockets, iommu: translated}, memory: {sink: SIZE}}
connections: {a: {between: "client, server", mtu: 1024}}
work:
  - write: {on: client/a, from: client.source, to: server.sink, times: 2, depth: 1}
  - read: {on: client/a, from: server.sink, into: client.source}
"""


@pytest.mark.parametrize(("size", "passes"), [("256 KiB", 1), ("512 KiB", 3)])
def test_pages_of_a_scenario_are_those_of_its_memory(size: str, passes: int) -> None:
    outcome = play(read_scenario_text(TEXT.replace("SIZE", size)))
    assert outcome.passed
    pages = int(size.split(maxsplit=1)[0]) // 4
    assert outcome.counters["server.iotlb_misses"] == passes * pages
    requests = pages * (2 * 16 + 8)  # of 256 bytes, and for 512 bytes
    assert outcome.counters["server.iotlb_hits"] == requests - passes * pages
    assert outcome.counters["client.iotlb_hits"] == outcome.counters["client.iotlb_misses"] == 0


def test_a_host_in_yaml_has_pages_and_ats() -> None:
    machine = read_topology(
        "topology: mine\nnuma nodes: {0: 0-3}\nhost bridges: {root: 0}\niommu: translated\n"
        "iommu page: 2 MiB\nadapters: {nic: {below: root, link: Gen4 x16, ats: true}}\n"
    )
    assert machine.settings.iommu_page == 1 << 21
    assert machine.device("nic").ats
