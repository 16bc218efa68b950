"""How much a scenario may ask for: messages, bytes, memory that is filled."""

import pytest

from tests.traffic.scenario.base import mistakes_of

TEXT = """\
name: Much
hosts:
  client: {memory: {source: 1 TiB, small: 8 KiB}}
  server: {memory: {sink: 1 TiB}}
connections: {a: {between: [client, server], count: 4096}, b: [client, server]}
"""
PACED = "links: {client-server: {rate: 100 Gbit/s}}\n"


def errors_of(work: str, more: str = "") -> list[str]:
    """What is said of a few steps, without the name of the file."""
    text = f"{TEXT}{more}work:\n{work}"
    return [str(mistake).removeprefix("it.yaml:") for mistake in mistakes_of(text)]


def write(local: str, end: str = "b", more: str = "") -> str:
    return f'  - write: {{on: client/{end}, from: "client.{local}", to: server.sink{more}}}\n'


def test_messages_of_all_queue_pairs_and_steps_count() -> None:
    most = write("small[0:1]", more=", times: 1000000")
    assert not errors_of(most * 10)
    said = "found 11000000 messages, all together up to here; expected 10000000 at most: "
    assert errors_of(most * 11) == [f"17:5: {said}fewer times, or fewer queue pairs"]
    assert errors_of(write("small[0:1]", "a#2", ", times: 1000000")) == []
    (only,) = errors_of(write("small[0:1]", "a", ", times: 1000000, depth: 8"))
    assert only.startswith("7:5: found 4096000000 messages")


def test_receives_are_messages() -> None:
    receives = "  - receive: {on: server/a, times: 10000}\n"
    assert errors_of(receives)[0].startswith("7:5: found 40960000 messages")


def test_bytes_of_all_messages_count() -> None:
    one = write("source[0:1 GiB]", more=", times: 2, depth: 1")
    assert not errors_of(one * 8, PACED)
    (only,) = errors_of(one * 8 + write("small[0:1]"), PACED)
    said = "found 17179869185 bytes to send, all together up to here; expected 16 GiB at most: "
    assert only == f"16:5: {said}fewer times, or shorter messages"


@pytest.mark.parametrize("more", ["", "links: {client-server: {latency: 1 us}}\n"])
def test_what_links_without_a_rate_would_take_at_once(more: str) -> None:
    said = "found 2 GiB to send at once, all together up to here; expected 1 GiB at most: "
    line = 7 + more.count("\n")
    assert errors_of(write("source[0:2 GiB]"), more) == [
        f"{line}:5: {said}less at a time, or a rate of each link"
    ]
    assert not errors_of(write("source[0:1 GiB]"), more)
    assert not errors_of(write("source[0:1 MiB]", more=", times: 16000, depth: 1"), more)
    assert not errors_of(write("source[0:2 GiB]"), PACED)


@pytest.mark.parametrize("content", ["fill: count", "fill: zeros", "text: x", 'hex: "00"'])
def test_no_more_is_filled_at_a_time_than_may_be(content: str) -> None:
    (only,) = errors_of(f"  - fill: {{what: client.source, {content}}}\n")
    said = "found 1099511627776 bytes to fill; expected 256 MiB at most: a part of it, such as "
    assert only == f"7:18: {said}client.source[0:256 MiB]"


def test_all_that_is_filled_counts() -> None:
    one = '  - fill: {what: "client.source[0:256 MiB]", text: x}\n'
    assert not errors_of(one * 4)
    said = "found 1280 MiB to fill, all together up to here; expected 1 GiB at most: "
    assert errors_of(one * 5) == [f"11:5: {said}zeros, or less memory"]
    whole = "{size: 256 MiB, fill: random}"
    memory = ", ".join(f"m{number}: {whole}" for number in range(5))
    host = f"  other: {{memory: {{{memory}}}}}\nlinks: {{client-server: {{}}}}\n"
    text = TEXT.replace("connections", f"{host}connections")
    assert any("found 1280 MiB to fill" in str(mistake) for mistake in mistakes_of(text))
