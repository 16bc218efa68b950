"""The doctor on scenarios: settings that do not go together, and what a run shows."""

import pytest

from rdmawire.doctor import examine_scenario
from rdmawire.traffic.scenario import read_scenario_text, read_shipped

PAUSED = """
name: two senders
hosts:
  one: {memory: {source: {size: 64 KiB, fill: count}}}
  sink: {memory: {first: 64 KiB}}
switches:
  leaf: {buffer: 1 MiB, queue: 512 KiB, queues: {3: QUEUE}}
links:
  one-leaf: {latency: 1 us, rate: 25 Gbit/s}
  leaf-sink: {latency: 1 us, rate: 25 Gbit/s}
connections:
  a: {between: "one, sink", dscp: 26, ecn: true}
work:
  - write: {on: one/a, from: one.source, to: sink.first}
"""


def causes(text: str) -> list[str]:
    return [one.check.name for one in examine_scenario(read_scenario_text(text))]


def queue(settings: str) -> str:
    return PAUSED.replace("QUEUE", f"{{dscp: 26, {settings}}}")


GOOD = "kmin: 20 KiB, kmax: 80 KiB, xoff: 100 KiB, xon: 50 KiB"


def test_good_settings_have_no_findings() -> None:
    assert causes(queue(GOOD)) == []


def test_pfc_for_another_priority() -> None:
    assert causes(queue(GOOD).replace("dscp: 26, ecn", "dscp: 8, ecn")) == ["pfc-not-for-dscp"]


def test_marks_that_come_too_late() -> None:
    late = GOOD.replace("kmin: 20 KiB, kmax: 80", "kmin: 200 KiB, kmax: 300")
    assert causes(queue(late)) == ["ecn-too-late"]
    dropped = "kmin: 600 KiB, kmax: 700 KiB"
    assert causes(queue(dropped)) == ["ecn-too-late"]


def test_frames_that_cannot_be_marked() -> None:
    assert causes(queue(GOOD).replace(", ecn: true", "")) == ["not-ecn-capable"]


def test_a_link_with_a_small_mtu() -> None:
    small = queue(GOOD).replace("one-leaf: {", "one-leaf: {mtu: 600, ")
    assert causes(small)[0] == "mtu-too-small"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("acs", ["acs"]),
        ("bar1-exhausted", ["bar1-full"]),
        ("dmabuf-not-supported", ["dmabuf-not-supported"]),
        ("dscp-not-trusted", ["dscp-not-trusted", "loss"]),
        ("ecn-after-pfc", ["ecn-too-late"]),
        ("locked-memory", ["locked-memory"]),
        ("mtu-mismatch", ["mtu-too-small", "tail-loss"]),
        ("peermem-not-loaded", ["peermem-not-loaded"]),
        ("pfc-wrong-priority", ["pfc-not-for-dscp", "loss"]),
        ("gpu-revoked", ["freed-while-registered", "remote-access"]),
        ("gpu-of-another-socket", ["other-socket", "through-host-memory"]),
        ("iommu", ["acs", "iommu"]),
        ("peer-to-peer-off", ["peer-to-peer-off", "acs", "through-host-memory"]),
        ("gpu-bounce", ["through-host-memory"]),
        ("no-pfc", ["loss"]),
        ("rnr-exhausted", ["receiver-not-ready"]),
        ("nak-invalid-request", ["invalid-request"]),
        ("cm-rejected", ["rejected"]),
        ("lost-last", ["tail-loss"]),
        ("retry-exhausted", ["no-answer"]),
    ],
)
def test_shipped_scenarios_with_problems(name: str, expected: list[str]) -> None:
    assert [one.check.name for one in examine_scenario(read_shipped(name))] == expected


@pytest.mark.parametrize(
    "name",
    ["write", "read", "send", "atomics", "ud", "pfc", "incast-of-gpus", "xrc", "on-demand", "ipv6"],
)
def test_shipped_scenarios_without_problems(name: str) -> None:
    assert examine_scenario(read_shipped(name)) == []
