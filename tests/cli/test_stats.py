"""`rdmawire stats`: its tables, JSON and pictures, and what it refuses."""

import json
import struct
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rdmawire.cli import stats as counting
from tests.cli.command import CAPTURES, RNR, rdmawire

IWARP = str(CAPTURES / "linux" / "siw61_err_badstag_write.pcap")


def stats(*words: str, stdin: bytes = b"", before: str = "") -> subprocess.CompletedProcess[str]:
    """What becomes of a call, in which no mistake of our own goes unseen."""
    env = {"RDMAWIRE_TRACEBACK": "1"}
    return rdmawire("stats", *words, stdin=stdin, env=env, before=before)


def without(library: str) -> str:
    """Python that makes a library impossible to import."""
    return f"import sys; sys.modules[{library!r}] = None; "


def table(text: str, title: str) -> list[list[str]]:
    """The rows of a table, with its heads."""
    _, _, rest = text.partition(f"\n{title}\n")
    return [line.split() for line in rest.split("\n\n")[0].splitlines()]


def test_tables_say_what_happened() -> None:
    done = stats(RNR)
    assert done.returncode == 0
    assert done.stdout.startswith(f"{RNR}: 152 frames, 17974 bytes in 693.883 ms: 137 RoCE")
    assert table(done.stdout, "opcodes")[1] == ["RC_ACKNOWLEDGE", "68", "4216", "0"]
    client = table(done.stdout, "queue pairs")[1]
    assert client[:5] == ["10.77.0.2", "0x00003a", "10.77.0.1", "0x00003a", "RC"]
    assert client[8:] == ["256", "259", "65", "0", "0", "0", "0", "0", "0", "0"]
    assert "RNR, timer 14, 1.28 ms     65" in done.stdout
    assert "\x1b" not in done.stdout


def test_tables_of_iwarp_count_opcodes_and_terminates() -> None:
    done = stats(IWARP)
    assert table(done.stdout, "RDMAP opcodes")[1:] == [["RDMA_WRITE", "2"], ["TERMINATE", "1"]]
    assert "DDP TAGGED_BUFFER_ERROR INVALID_STAG      1" in done.stdout


def test_json_is_one_object_for_all_files() -> None:
    captures = json.loads(stats("--json", RNR, IWARP).stdout)["captures"]
    assert [capture["files"] for capture in captures] == [[RNR], [IWARP]]
    client, server = captures[0]["flows"]
    assert client["requests"]["duplicates"] == 65
    assert server["responses"]["rnr_naks"] == [{"timer": 14, "wait_ns": 1_280_000, "count": 65}]
    assert (client["back"], server["back"]) == (1, 0)
    assert sum(captures[0]["throughput"]["frames"]) == 137


def test_files_together_are_one_capture() -> None:
    (capture,) = json.loads(stats("--json", "--together", RNR, IWARP).stdout)["captures"]
    assert capture["files"] == [RNR, IWARP]
    assert capture["frames"] == 152 + 16
    assert (capture["transport"]["frames"], capture["iwarp"]["frames"]) == (137, 5)


def test_standard_input_and_other_formats_give_the_same(tmp_path: Path) -> None:
    wanted = json.loads(stats("--json", RNR).stdout)["captures"][0]
    found = json.loads(stats("--json", "-", stdin=Path(RNR).read_bytes()).stdout)["captures"][0]
    assert found.pop("files") == ["standard input"]
    wanted.pop("files")
    assert found == wanted


def test_the_width_of_intervals_is_as_given_or_refused() -> None:
    rows = table(stats("--interval", "100ms", RNR).stdout, "throughput, each 100 ms")
    assert len(rows) == 1 + 7
    assert stats("--interval", "soon", RNR).returncode == 2
    done = stats("--interval", "1ns", RNR)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "choose longer ones" in done.stderr


def test_too_many_intervals_cost_one_capture_only() -> None:
    done = stats("--json", "--interval", "5us", RNR, IWARP)
    assert done.returncode == 1
    assert done.stderr.startswith(f"rdmawire: {RNR}: the capture has more than ")
    assert [capture["files"] for capture in json.loads(done.stdout)["captures"]] == [[IWARP]]


def test_the_largest_rows_are_shown() -> None:
    text = stats("--top", "1", RNR).stdout
    assert len(table(text, "opcodes")) == 2 + 1
    assert "... and 4 more; --top 0 shows all" in text


def test_what_stands_before_damage_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(Path(RNR).read_bytes()[:-3])
    done = stats(str(path))
    assert done.returncode == 1
    assert "151 frames" in done.stdout
    assert done.stderr.startswith("rdmawire: ")
    assert done.stderr.count("\n") == 1


def test_what_cannot_be_read_is_reported_and_the_rest_counted() -> None:
    done = stats("--json", "nowhere.pcap", RNR)
    assert done.returncode == 1
    assert "nowhere.pcap: there is no such file" in done.stderr
    assert len(json.loads(done.stdout)["captures"]) == 1


@pytest.mark.parametrize("keep", [24, 0])
def test_captures_of_nothing(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "empty.pcap"
    path.write_bytes(Path(RNR).read_bytes()[:keep])
    done = stats("--plot", str(tmp_path / "x.png"), str(path))
    assert done.returncode == (0 if keep else 1)
    assert ("0 frames" in done.stdout) == bool(keep)
    assert done.stderr.count("\n") == (0 if keep else 1)


def test_a_picture_that_does_not_fit_leaves_the_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    stats("--plot", str(path), RNR)
    most = path.stat().st_size - 1
    path.write_text("earlier")
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most})); "
    done = stats("--plot", str(path), RNR, before=limit)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"{path}: it would be longer than files may be" in done.stderr
    assert [each.read_text() for each in tmp_path.iterdir()] == ["earlier"]


def test_a_picture_goes_where_a_link_points(tmp_path: Path) -> None:
    (tmp_path / "x.svg").symlink_to("/dev/full")
    done = stats("--plot", str(tmp_path / "x.svg"), RNR)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "no space is left on the device" in done.stderr


def test_a_picture_of_a_capture_with_an_odd_name(tmp_path: Path) -> None:
    path = tmp_path / "捕\udcff$x\x1b.pcap"
    path.write_bytes(Path(RNR).read_bytes())
    done = stats("--plot", str(tmp_path / "x.svg"), str(path))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_picture_as_svg(tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    assert stats("--plot", str(path), RNR).returncode == 0
    root = ElementTree.fromstring(path.read_bytes())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert list(tmp_path.iterdir()) == [path]
    once = path.read_bytes()
    stats("--plot", str(path), RNR)
    assert path.read_bytes() == once


@pytest.mark.parametrize("capture", [RNR, IWARP])
def test_a_picture_as_png(tmp_path: Path, capture: str) -> None:
    path = tmp_path / "x.PNG"
    assert stats("--plot", str(path), capture).returncode == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_picture_without_a_folder_is_refused_before_anything_is_counted(tmp_path: Path) -> None:
    done = stats("--plot", str(tmp_path / "nowhere" / "x.png"), RNR)
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--plot", "x.pdf", RNR), 2, "must end in .svg or .png"),
        (("--plot", "x.png", RNR, IWARP), 2, "give one FILE, or --together"),
        (("--plot", "/nowhere/x.png", RNR), 1, "its folder does not exist"),
        (("--top", "9223372036854775808", RNR), 2, "is larger than 9223372036854775807"),
        ((), 2, "Missing argument 'FILE...'"),
    ],
)
def test_refusals_are_one_line(words: tuple[str, ...], status: int, said: str) -> None:
    done = stats(*words)
    assert done.returncode == status
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_extra_is_named() -> None:
    done = stats("--plot", "x.png", RNR, before=without("matplotlib"))
    assert done.returncode == 1
    assert "pip install 'rdmawire[plot]'" in done.stderr
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)


def test_tables_need_no_matplotlib() -> None:
    assert stats(RNR, before=without("matplotlib")).returncode == 0


def test_help_needs_no_numpy() -> None:
    done = stats("--help", before=without("numpy"))
    assert done.returncode == 0
    assert "which one acknowledges the PSNs" in " ".join(done.stdout.split())


def test_times_beyond_all_measure(tmp_path: Path) -> None:
    def block(kind: int, body: bytes) -> bytes:
        return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)

    in_seconds = struct.pack("<HHB3xHH", 9, 1, 0, 0, 0)
    path = tmp_path / "x.pcapng"
    path.write_bytes(
        block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
        + block(1, struct.pack("<HHI", 1, 0, 65535) + in_seconds)
        + b"".join(
            block(6, struct.pack("<IIIII", 0, high, 0, 60, 60) + bytes(60))
            for high in (0, 0xFFFFFFFF, 7)
        )
    )
    done = stats(str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 frames, 180 bytes" in done.stdout


def test_only_frames_that_pass_a_filter_are_counted() -> None:
    done = stats("--json", "-Y", "infiniband.bth.opcode == RC_ACKNOWLEDGE", RNR)
    (capture,) = json.loads(done.stdout)["captures"]
    assert capture["frames"] == 68
    done = stats("-Y", "infiniband.bth.opcod == 1", RNR)
    assert done.returncode == 2
    assert "the nearest is infiniband.bth.opcode" in done.stderr


def test_a_name_of_a_file_is_no_markup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(counting, "_LONG", 1)
    monkeypatch.chdir(tmp_path)
    Path("[").mkdir()
    Path("[/red]").write_bytes(Path(RNR).read_bytes())
    counts = counting.Counting(None, [4791], None, points=False, progress=True).group(["[/red]"])
    assert counts is not None
    assert counts.statistics.frames == 152
    assert "[/red]" in capsys.readouterr().err
