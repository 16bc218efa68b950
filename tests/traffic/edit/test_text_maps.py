"""Files of maps: what they say, and in which line something is wrong."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rdmawire.traffic.edit import EditError
from rdmawire.traffic.edit import text as map_file
from rdmawire.traffic.edit.text import SECTIONS, read_maps

MINE = """
# addresses
[ip]
10.77.0.0/24 = 192.168.7.0/24
[ qpn ]
0x11@10.77.0.1=0x1234   # the server's
0x12=5
[ip]
10.78.0.1=1.2.3.4
"""


def written(tmp_path: Path, content: str | bytes) -> Path:
    """A file that says this."""
    path = tmp_path / "maps"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_file_of_maps_equals_the_options(tmp_path: Path) -> None:
    assert {
        name: content for name, content in read_maps(written(tmp_path, MINE)).items() if content
    } == {
        "ip": ["10.77.0.0/24=192.168.7.0/24", "10.78.0.1=1.2.3.4"],
        "qpn": ["0x11@10.77.0.1=0x1234", "0x12=5"],
    }


def test_lines_may_end_as_on_other_systems(tmp_path: Path) -> None:
    path = written(tmp_path, b"\xef\xbb\xbf" + MINE.replace("\n", "\r\n").encode())
    assert read_maps(path)["qpn"] == ["0x11@10.77.0.1=0x1234", "0x12=5"]


WRONG: list[tuple[str | bytes, str]] = [
    ("\n1=2", ", line 2: one of [mac], [ip], [lid], [vlan], [pkey], [qpn], [rkey] comes first"),
    ("[qpns]", ", line 1: '[qpns]' is none of [mac], [ip], [lid], [vlan], [pkey], [qpn], [rkey]"),
    ("[qpn]\n1=2\n\n3", ", line 4: '3': OLD=NEW is expected"),
    ("[qpn]\n1=2=3", ", line 2: '1=2=3': '2=3' is no number, such as 17 or 0x11"),
    ("[mac]\n1=2", ", line 2: '1=2': '1' is no Ethernet address, such as 52:54:00:00:00:01"),
    ("[qpn]\n1=2\n[ip]\n[qpn]\n0x1=3", ", line 5: line 2 maps the same"),
    (b"[qpn]\n1=\xff", ", line 2: no UTF-8"),
]


@pytest.mark.parametrize(("content", "message"), WRONG)
def test_a_mistake_is_reported_with_its_line(
    content: str | bytes, message: str, tmp_path: Path
) -> None:
    path = written(tmp_path, content)
    with pytest.raises(EditError) as refused:
        read_maps(path)
    assert str(refused.value) == f"{path}{message}"


def test_the_same_number_of_another_host_or_section_is_another_one(tmp_path: Path) -> None:
    path = written(tmp_path, "[qpn]\n1=2\n1@10.0.0.1=3\n[rkey]\n1=2")
    assert read_maps(path)["qpn"] == ["1=2", "1@10.0.0.1=3"]


def test_a_file_is_bounded_and_must_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EditError, match="No such file"):
        read_maps(tmp_path / "nothing")
    monkeypatch.setattr(map_file, "MAX_BYTES", 10)
    with pytest.raises(EditError, match="more than 10 bytes"):
        read_maps(written(tmp_path, MINE))


_LINES = st.one_of(
    st.sampled_from([f"[{name}]" for name in SECTIONS]),
    st.text(max_size=30),
    st.from_regex(r"[0-9a-fx.:@/]{1,12}=[0-9a-fx.:@/]{1,12}", fullmatch=True),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_LINES, max_size=6))
def test_any_file_is_read_or_refused_with_nothing_else(tmp_path: Path, lines: list[str]) -> None:
    with suppress(EditError):
        read_maps(written(tmp_path, "\n".join(lines).encode(errors="surrogatepass")))
