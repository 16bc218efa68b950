"""`rdmawire dissect` of large files: the same output where frames are printed many at once."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from rdmawire.capture import Record, create_capture, open_capture
from rdmawire.cli import dissect

CAPTURES = Path(__file__).parents[2] / "captures"


@pytest.fixture(name="capture")
def _capture(tmp_path: Path) -> Path:
    """A capture with plain frames, other frames, and a record that is cut off."""
    path = tmp_path / "frames.pcap"
    with create_capture(path) as writer:
        for name in ("golden/rc.pcap", "generated/vxlan.pcap", "golden/errors.pcap"):
            with open_capture(CAPTURES / name) as reader:
                for record in reader:
                    writer.write(Record(record.data, record.time_ns, record.length, 1))
    path.write_bytes(path.read_bytes()[:-3])
    return path


@pytest.fixture(name="both")
def _both(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def both(*arguments: str) -> None:
        outputs = []
        for large in (0, 1 << 40):
            monkeypatch.setattr(dissect, "_LARGE", large)
            monkeypatch.setattr(dissect, "_FEW", 0)
            done = CliRunner().invoke(dissect.command, arguments)
            outputs.append((done.exit_code, done.stdout, done.stderr))
        assert outputs[0] == outputs[1]

    return both


@pytest.mark.parametrize(
    "options",
    [
        "",
        "-V",
        "--json",
        "-T ndjson",
        "-q",
        "-q --json",
        "-c 9",
        "--json -c 9",
        "--from 3 --to 20",
        "-T ndjson --from 2us -c 30",
        "-Y infiniband.bth.psn>1 -V",
        "-Y infiniband.aeth.syndrome",
        "-x",
        "--color always",
        "-q --fail-on-bad-checksum --fail-on-malformed",
        "--port 4792",
        "-T fields -e frame.number -e infiniband.bth.psn",
        "-T fields -e frame.number -e ip.addr",
        "-T fields -e frame.number -c 30",
        "-T fields -e infiniband.bth.psn --from 3 --to 40 -E quote=d -E header=y",
        "-T fields -e frame.number -Y infiniband.bth.psn>1 -c 4",
        "-T fields -e frame.number --fail-on-bad-checksum",
    ],
)
def test_the_output_is_the_same(options: str, capture: Path, both: Callable[..., None]) -> None:
    both(*options.split(), str(capture))


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--json -c 60",
        "-q",
        *(pytest.param(words, marks=pytest.mark.slow) for words in ("-T ndjson", "--json")),
    ],
)
def test_several_files_are_printed_in_turn(
    options: str, capture: Path, both: Callable[..., None]
) -> None:
    sound = str(CAPTURES / "golden/rc.pcap")
    both(*options.split(), sound, str(capture), sound)


def test_a_name_with_control_characters_is_escaped(
    both: Callable[..., None], capture: Path
) -> None:
    named = capture.rename(capture.with_name("a\nb\x1b[31m.pcap"))
    both("-q", str(named))
    both("-c", "3", str(named), str(named))
    both("-T", "json", "-q", str(named))
