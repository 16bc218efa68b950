"""Wishes: which make sense, and what is said of those that do not."""

from typing import Any

import pytest

from rdmawire.traffic.generate.spec import (
    DEFAULT_SIZES,
    FASTEST,
    SLOWEST,
    Address,
    Sizes,
    SpecError,
    TrafficSpec,
    Verb,
)


@pytest.mark.parametrize("verb", list(Verb))
def test_every_verb_can_be_asked_for_without_another_word(verb: Verb) -> None:
    spec = TrafficSpec(verb=verb)
    assert spec.messages == 1000
    assert spec.lengths == Sizes.parse(DEFAULT_SIZES.get(verb, "8"))


def test_frames_instead_of_messages() -> None:
    assert TrafficSpec(verb=Verb.WRITE, frames=7).messages is None


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        ({"mtu": 1000}, "mtu: 1000 is not one of 256, 512, 1024, 2048, 4096"),
        ({"count": 0}, "count: 0 is not an integer from 1 to 1000000000000000"),
        ({"frames": -1}, "frames: -1 is not an integer"),
        ({"qps": 0}, "qps: 0 is not an integer from 1 to 16384"),
        ({"qps": 16385}, "qps: 16385 is not an integer from 1 to 16384"),
        ({"vlan": 4095}, "vlan: 4095 is not an integer from 0 to 4094"),
        ({"vlan": 1, "pcp": 8}, "pcp: 8 is not an integer from 0 to 7"),
        ({"pcp": 3}, "a priority stands in the tag of a VLAN: say which VLAN"),
        ({"dscp": 64}, "dscp: 64 is not an integer from 0 to 63"),
        ({"psn": 1 << 24}, "psn: 16777216 is not an integer from 0 to 16777215"),
        ({"seed": -1}, "seed: -1 is not an integer"),
        ({"latency": -1}, "latency: -1 is not an integer"),
        ({"rate": 0}, "rate: 0 is not an integer"),
        ({"loss": 0.51}, "loss: 0.51 (float) is not a number from 0 to 0.5"),
        ({"marks": 1.5}, "marks: 1.5 (float) is not a number from 0 to 1"),
        ({"count": 1, "frames": 1}, "count and frames both say how much"),
        ({"verb": Verb.ATOMIC, "sizes": Sizes.parse("8")}, "atomic has messages of one size"),
        ({"verb": Verb.CM, "sizes": Sizes.parse("8")}, "cm has messages of one size"),
        (
            {"verb": Verb.UD, "sizes": Sizes.parse("64,2k")},
            "a datagram has at most the MTU's 1024 bytes, not 2048",
        ),
        ({"verb": Verb.CNP, "loss": 0.1}, "cnp"),
        ({"verb": Verb.CM, "marks": 0.1}, "cm has no data that could be marked"),
        ({"verb": Verb.CM, "gpu": True}, "no GPU memory"),
        ({"verb": Verb.ATOMIC, "marks": 0.1}, "atomic has no data that could be marked"),
        ({"verb": Verb.UD, "timeout": 8}, "ud has no requests that wait for an ACK"),
        ({"timeout": 32}, "timeout: 32 is not an integer from 1 to 31"),
        ({"verb": "write"}, "verb: 'write' (str) is not of type Verb"),
        ({"sizes": "64"}, "sizes: '64' (str) is not of type Sizes"),
        ({"verb": Verb.CM, "window": 8}, "cm has no requests that wait for an ACK"),
        ({"window": 0}, "window: 0 is not an integer from 1 to 8388607"),
        ({"cnp_dscp": 64}, "cnp_dscp: 64 is not an integer from 0 to 63"),
        (
            {"rate": SLOWEST - 1},
            f"rate: {SLOWEST - 1} is not an integer from {SLOWEST} to {FASTEST}",
        ),
        ({"rate": FASTEST + 1}, f"rate: {FASTEST + 1} is not an integer"),
        ({"client": Address.parse("fd00::9")}, "both of IPv6 with --ipv6"),
        ({"server": Address.parse("10.0.0.9"), "ipv6": True}, "both of IPv4"),
        (
            {"client": Address.parse("10.9.9.9"), "server": Address.parse("10.9.9.9")},
            "have the same address",
        ),
        ({"client": Address.parse("10.0.0.2")}, "have the same address"),
        (
            {"client": Address.parse("10.9.9.9/02:00:00:00:00:02")},
            "have the same Ethernet address",
        ),
    ],
)
def test_what_makes_no_sense_says_what_is_allowed(wishes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as found:
        TrafficSpec(**{"verb": Verb.WRITE, **wishes})
    assert said in str(found.value)
