"""Findings: a folder for each, with all that is needed to see it and to play it again.

- ``finding.json``: what is fuzzed, seed and run, the minimised case, what was expected and by which
  clause, what happened.
- ``packets.pcapng``: the frames of the minimised case in both directions; a comment at the last.
- ``scenario.yaml``: the same as a scenario for ``rdmawire run``, if one can express it.
- ``report.txt``: the inputs in words, the commands that play it again, and if there is no scenario,
  why.

A folder is written under another name and then renamed, so that it is complete or absent.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

from rdmawire.capture import COMMENT, Record, create_capture
from rdmawire.errors import CaptureError, FuzzError
from rdmawire.fuzz.fuzzer import Found, Frame, Fuzzer, ScenarioFuzzer, Spec, make_fuzzer
from rdmawire.fuzz.oracle import Violation
from rdmawire.terminal import shorten

FORMAT: Final = 1
"""Version of ``finding.json``."""
MAX_JSON: Final = 8 << 20
"""Bytes of a ``finding.json`` that are read at most."""
_MAX_PATH: Final = 200
"""Characters of a path in a message."""
_MAX_COMMENT: Final = 8000
"""Characters of the comment at the last frame: an option of a pcapng has at most 65535 bytes."""
NAME: Final = "finding.json"
SCENARIO: Final = "scenario.yaml"
FRAMES: Final = "packets.pcapng"
REPORT: Final = "report.txt"


class Finding(NamedTuple):
    """A violation with everything that repeats it. ``case`` is JSON, minimised."""

    spec: dict[str, Any]
    seed: int
    run: int
    violation: Violation
    case: Any

    @property
    def name(self) -> str:
        """The name of the folder: the first words of the signature, and a number for all of it."""
        words = re.sub(r"[^a-z0-9]+", "-", self.violation.signature.lower()).strip("-")
        every = f"{self.spec} {self.violation.signature}"
        number = crc32(every.encode(errors="surrogatepass"))
        return f"{words[:48].rstrip('-')}-{number:08x}"

    @property
    def inputs(self) -> int:
        """The number of inputs of the case: of MPA, start-up frames and FPDUs.

        Mutants of frames count as one, and so does a case that was changed by hand.
        """
        values = self.case if isinstance(self.case, dict) else {}
        lists = [values.get(name) for name in ("inputs", "sides", "units")]
        return sum(len(one) for one in lists if isinstance(one, list)) or 1

    def as_json(self) -> dict[str, Any]:
        """Return the finding as JSON values."""
        return {
            "format": FORMAT,
            "target": self.spec,
            "seed": self.seed,
            "run": self.run,
            **self.violation._asdict(),
            "case": self.case,
        }


def write_finding(folder: Path, finding: Finding, fuzzer: Fuzzer) -> Path:
    """Write the folder of a finding into ``folder``; return its path.

    In a folder of the same name the files of the finding are replaced; other files stay. Raises
    :class:`FuzzError` if it cannot be written.
    """
    path = folder / finding.name
    temporary = folder / f".{finding.name}.{os.getpid()}"
    try:
        shutil.rmtree(temporary, ignore_errors=True)  # of a killed process with this number
        temporary.mkdir(parents=True)
        _write_files(temporary, finding, fuzzer)
        if path.is_dir():
            _replace_files(path, temporary)
        else:
            temporary.rename(path)
    except (OSError, CaptureError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FuzzError(f"{path_text(path)}: cannot write the finding: {reason}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return path


def _replace_files(folder: Path, temporary: Path) -> None:
    """Move the files of a finding to a folder that may have older ones; ``finding.json`` last."""
    for name in (FRAMES, SCENARIO, REPORT, NAME):
        if (temporary / name).exists():
            (temporary / name).replace(folder / name)
        else:
            (folder / name).unlink(missing_ok=True)


def _write_files(folder: Path, finding: Finding, fuzzer: Fuzzer) -> None:
    text = json.dumps(finding.as_json(), indent=1) + "\n"
    (folder / NAME).write_text(text)
    if frames := fuzzer.frames(finding.case):
        _write_frames(folder / FRAMES, frames, finding.violation)
    text, lines = _scenario(finding, fuzzer)
    if text:
        (folder / SCENARIO).write_text(text, encoding="utf-8")
    (folder / REPORT).write_text(
        "\n".join((*report(finding, fuzzer), *lines)) + "\n",
        encoding="utf-8",
        errors="backslashreplace",
    )


def _scenario(finding: Finding, fuzzer: Fuzzer) -> tuple[str, list[str]]:
    """Return the text of the finding's scenario, if it has one, and the report's lines about it."""
    if not isinstance(fuzzer, ScenarioFuzzer):
        return "", [f"No {SCENARIO}: a scenario cannot play findings of this kind"]
    try:
        text = fuzzer.scenario(finding.case, finding.violation)
        return text, [*_scenario_lines(finding, text, fuzzer)]
    except FuzzError as error:
        return "", [f"No {SCENARIO}: {error}"]


def _scenario_lines(finding: Finding, text: str, fuzzer: ScenarioFuzzer) -> Iterator[str]:
    """Yield the lines of a report about a scenario, which is played to see what it shows."""
    bug = finding.spec.get("bug")
    option = f"--bug server={bug} " if bug else ""
    if not fuzzer.is_software_rnic:
        yield f"See the packets in a scenario: rdmawire run FOLDER/{SCENARIO}"
        yield "It is played on the software RNIC, not on the target of this finding."
        return
    if fuzzer.passes(text):
        yield f"See the packets in a scenario: rdmawire run {option}FOLDER/{SCENARIO}"
        yield "It passes: what it expects does not tell the fault from a healthy adapter."
        return
    yield f"Play it as a scenario, which fails: rdmawire run {option}FOLDER/{SCENARIO}"
    if bug and fuzzer.passes(text, healthy=True):
        yield f"It passes without the bug: rdmawire run FOLDER/{SCENARIO}"


def _write_frames(path: Path, frames: list[Frame], violation: Violation) -> None:
    last = f"expected: {violation.expected}; happened: {violation.happened}; {violation.clause}"
    comment = shorten(last, _MAX_COMMENT).encode(errors="backslashreplace")
    with create_capture(path) as writer:
        for number, frame in enumerate(frames, 1):
            options = ((COMMENT, comment),) if number == len(frames) else ()
            size = len(frame.data)
            writer.write(Record(frame.data, frame.time, size, frame.link_type, options=options))


def report(finding: Finding, fuzzer: Fuzzer) -> Iterator[str]:
    """Yield the lines of a report in plain text."""
    violation = finding.violation
    target = ", ".join(f"{name} {value}" for name, value in finding.spec.items())
    yield violation.signature
    yield f"target: {target}; seed {finding.seed}, run {finding.run}"
    yield ""
    if isinstance(finding.case, dict) and "setup" in finding.case:
        yield f"setup: {finding.case['setup']}"
    for number, line in enumerate(fuzzer.describe(finding.case), 1):
        yield f"{number:4}. {line}"
    yield ""
    yield f"expected: {violation.expected}"
    yield f"happened: {violation.happened}"
    yield f"clause:   {violation.clause or 'none'}"
    yield ""
    yield _replay_line(finding, fuzzer)
    yield "See the packets: rdmawire dissect FOLDER/packets.pcapng"


def _replay_line(finding: Finding, fuzzer: Fuzzer) -> str:
    """The line of a report that says how the case is played again."""
    if isinstance(fuzzer, ScenarioFuzzer) and not fuzzer.is_software_rnic:
        return "Play it again on this target, in Python: fuzzer.replay(read_finding(FOLDER).case)"
    if code_of(finding.spec):
        where = "" if "command" in finding.spec else ", in the folder of the module"
        return f"Play it again{where}: rdmawire fuzz replay --trust FOLDER"
    return "Play it again: rdmawire fuzz replay FOLDER"


def code_of(spec: Spec) -> str:
    """Return the command, or the function of another package, that a specification runs.

    ``""`` if it runs none.
    """
    named = str(spec.get("command") or spec.get("function") or "")
    return named if "command" in spec or ":" in f"{named}{spec.get('expected', '')}" else ""


def path_text(path: Path) -> str:
    """Write a path in a message."""
    return shorten(str(path), _MAX_PATH)


def read_finding(path: Path) -> Finding:
    """Read a finding: its folder or its ``finding.json``. Raises :class:`FuzzError` for others."""
    file = _file_of(path)
    values = read_json(file)
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise FuzzError(f"{path_text(file)}: not a finding of format {FORMAT}")
    try:
        violation = Violation(**{name: values[name] for name in Violation._fields})
        finding = Finding(
            values["target"], values["seed"], values["run"], violation, values["case"]
        )
    except KeyError as error:
        raise FuzzError(f"{path_text(file)}: {error.args[0]} is missing") from None
    _check_types(file, finding)
    return finding


def _file_of(path: Path) -> Path:
    """Return the file of a finding: in the folder ``path``, or ``path`` itself."""
    try:
        if not path.is_dir():
            return path
        file = path / NAME
        if file.exists():
            return file
        hint = _folders_hint(path)
    except (OSError, ValueError) as error:
        raise not_read(path, error) from error
    raise FuzzError(f"{path_text(path)}: no {NAME} in it{hint}")


def _folders_hint(path: Path) -> str:
    """The end of a message about a folder that has findings in folders of its own."""
    if not any(path.glob(f"*/{NAME}")):
        return ""
    return f": name the folders of its findings, {path_text(path)}/*/"


def not_read(path: Path, error: OSError | ValueError) -> FuzzError:
    """Return the error for a path that cannot be read."""
    reason = getattr(error, "strerror", None) or error
    return FuzzError(f"{path_text(path)}: cannot read it: {reason}")


def exists(path: Path) -> bool:
    """Whether there is a file. Raises :class:`FuzzError` if that cannot be said."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise not_read(path, error) from error
    return True


def read_json(path: Path) -> Any:
    """Read a JSON file of bounded size. Raises :class:`FuzzError`, with the path, for others."""
    if exists(path) and path.is_fifo():  # opening it would wait for a writer
        raise FuzzError(f"{path_text(path)}: cannot read it: it is a pipe")
    return parse_json(path, read_bounded(path, MAX_JSON))


def read_bounded(path: Path, limit: int) -> bytes:
    """Read a file of at most ``limit`` bytes. Raises :class:`FuzzError`, with the path."""
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:
        raise not_read(path, error) from error
    if len(data) > limit:
        raise FuzzError(f"{path_text(path)}: more than {limit} bytes")
    return data


def parse_json(path: Path, data: bytes) -> Any:
    """Parse the contents of a JSON file. Raises :class:`FuzzError`, with the path, for others."""
    try:
        return json.loads(data)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise FuzzError(f"{path_text(path)}: not JSON: {error}") from error
    except ValueError as error:
        raise FuzzError(f"{path_text(path)}: not JSON: a number has too many digits") from error
    except RecursionError as error:
        raise FuzzError(f"{path_text(path)}: not JSON: it is nested too deeply") from error


def _check_types(path: Path, finding: Finding) -> None:
    texts = (*finding.violation[1:],)
    right = (
        isinstance(finding.spec, dict)
        and isinstance(finding.seed, int)
        and isinstance(finding.run, int)
        and isinstance(finding.violation.place, int)
        and all(isinstance(text, str) for text in texts)
    )
    if not right:
        raise FuzzError(f"{path_text(path)}: values of other types than a finding has")


def findings_in(folder: Path) -> Iterator[Finding]:
    """Yield the findings in a folder, by name; not those that a killed process was writing."""
    for file in sorted(folder.glob(f"*/{NAME}")):
        if not file.parent.name.startswith(".") and not file.is_dir():
            yield read_finding(file)


def replay(finding: Finding) -> Violation | None:
    """Play a finding again; return the violation that it shows now, or ``None``."""
    shown, _ = make_fuzzer(finding.spec).replay(finding.case)
    return shown


def as_finding(spec: Spec, seed: int, found: Found) -> Finding:
    """Return what a batch found as a finding."""
    return Finding(dict(spec), seed, found.run, found.violation, found.case)
