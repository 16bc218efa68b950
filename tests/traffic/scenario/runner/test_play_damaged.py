"""Scenarios in which faults leave what no receiver makes sense of: they are played to their end."""

import pytest

from rdmawire.traffic.scenario.reader import read_scenario_text
from rdmawire.traffic.scenario.runner.play import play

DAMAGED = """
name: A frame of no meaning
hosts:
  client: {{address: "{client}", memory: {{s: 1 KiB}}}}
  server: {{address: "{server}", memory: {{d: 1 KiB}}}}
links:
  client-server:
    faults: [set: {{field: {field}, value: {value}, seal: {seal}, nth: 1}}]
connections: {{a: "client, server"}}
work: [write: {{on: client/a, from: client.s, to: server.d}}]
expect:
  counters: {{client-server.rewritten: 1, server.dropped: 1, client.retransmits: 1}}
"""

SHORT = """
name: An ACK of two bytes meets a switch
hosts: {client: {memory: {s: 1 KiB}}, server: {memory: {d: 1 KiB}}}
switches: {leaf: {}}
links:
  client-leaf: {rate: 10 Gbit/s}
  leaf-server:
    rate: 10 Gbit/s
    faults: [truncate: {where: {bth.opcode: RC_ACKNOWLEDGE}, nth: 1, by: 60}]
connections: {a: "client, server"}
work: [write: {on: client/a, from: client.s, to: server.d}]
expect:
  counters: {leaf-server.truncated: 1, leaf.stranded: 1, client.retransmits: 1}
"""

SLOW = """
name: A line slower than the scheme's least rate
hosts: {client: {memory: {s: 8 KiB}}, server: {memory: {d: 8 KiB}}}
links: {client-server: {rate: 1 Mbit/s}}
connections: {a: {between: "client, server", congestion: SCHEME, attributes: {timeout: 20}}}
work: [write: {on: client/a, from: client.s, to: server.d}]
"""

IPV6 = {"client": "fd00::1", "server": "fd00::2"}
IPV4 = {"client": "10.0.0.1", "server": "10.0.0.2"}


@pytest.mark.parametrize("seal", ["true", "false"])
@pytest.mark.parametrize(
    ("addresses", "field", "value"),
    [
        (IPV6, "ipv6.version", 4),
        (IPV4, "ip.version", 6),
        (IPV4, "ip.ihl", 3),
        (IPV4, "ip.ihl", 0),
        (IPV4, "ip.ihl", 15),
    ],
)
def test_a_header_of_no_meaning(
    addresses: dict[str, str], field: str, value: int, seal: str
) -> None:
    text = DAMAGED.format(**addresses, field=field, value=value, seal=seal)
    assert play(read_scenario_text(text)).failures == ()


def test_an_ack_of_two_bytes() -> None:
    assert play(read_scenario_text(SHORT)).failures == ()


@pytest.mark.parametrize("scheme", ["dcqcn", "timely"])
def test_a_line_slower_than_the_least_rate(scheme: str) -> None:
    outcome = play(read_scenario_text(SLOW.replace("SCHEME", scheme)))
    assert outcome.failures == ()
    assert outcome.counters["client.retransmits"] == 0
