"""Files of `rdmawire fuzz learn`, which are read and checked before anything is learned."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rdmawire.errors import CaptureError, FuzzError
from rdmawire.terminal import shorten

if TYPE_CHECKING:
    from rdmawire.fuzz.learn.compare import Agreed
    from rdmawire.fuzz.learn.machine import MealyMachine

_MAX_MACHINE: Final = 16 << 20
"""Bytes of a machine's file that are read at most."""
_MAX_STATES: Final = 1000
"""States of a machine that another one is compared with, at most."""
_MAX_TRANSITIONS: Final = 50_000
"""Transitions of such a machine, at most."""
_MAX_INPUTS: Final = 1_000_000
"""Inputs in the sequences that tell the states of such a machine apart, at most."""
_MAX_AGREED: Final = 1 << 20
"""Bytes of a file of agreed differences that are read at most."""
_MAX_MESSAGE: Final = 300
"""Characters of a message about the contents of a file."""


def read_machine(path: Path) -> "MealyMachine":
    """Read a machine from a file, Graphviz or JSON. Raises :class:`FuzzError`."""
    from rdmawire.fuzz.finding import parse_json
    from rdmawire.fuzz.learn.machine import MealyMachine

    data = _read(path, _MAX_MACHINE)
    values = parse_json(path, data) if data.lstrip().startswith(b"{") else None
    try:
        if values is None:
            machine = MealyMachine.from_dot(data.decode())
        else:
            machine = MealyMachine.from_json(values)
    except (FuzzError, UnicodeDecodeError) as error:
        raise _about(path, error) from None
    if len(machine) > _MAX_STATES:
        raise FuzzError(
            f"{path}: {len(machine)} states: a machine to compare with has at most {_MAX_STATES}"
        )
    _check_size(path, machine)
    return machine


def _check_size(path: Path, machine: "MealyMachine") -> None:
    """Raise :class:`FuzzError` for a machine whose comparison would take very long."""
    if (transitions := len(machine) * len(machine.inputs)) > _MAX_TRANSITIONS:
        raise FuzzError(
            f"{path}: {transitions:,} transitions: a machine to compare with has at most "
            f"{_MAX_TRANSITIONS:,}"
        )
    if machine.longest_tests > _MAX_INPUTS:
        raise FuzzError(
            f"{path}: its states are too far from each other: a comparison takes up to "
            f"{machine.longest_tests:,} inputs, and at most {_MAX_INPUTS:,} are played"
        )


def read_agreed_file(path: Path) -> "frozenset[Agreed]":
    """Read agreed differences from a file. Raises :class:`FuzzError`."""
    from rdmawire.fuzz.learn.compare import read_agreed

    data = _read(path, _MAX_AGREED)
    try:
        return read_agreed(data.decode().splitlines())
    except (FuzzError, UnicodeDecodeError) as error:
        raise _about(path, error) from None


def _about(path: Path, error: Exception) -> FuzzError:
    return FuzzError(f"{path}: {shorten(str(error), _MAX_MESSAGE)}")


def _read(path: Path, limit: int) -> bytes:
    """Read a file of at most ``limit`` bytes. Raises :class:`FuzzError`."""
    from rdmawire.fuzz.finding import read_bounded

    if _is_named_pipe(path):  # opening it would wait for a writer
        raise FuzzError(f"{path}: cannot read it: it is a named pipe")
    return read_bounded(path, limit)


def _is_named_pipe(path: Path) -> bool:
    """Whether a path is a pipe in a file system, not one of a shell's ``<(command)``."""
    try:
        return path.is_fifo() and path.resolve().is_fifo()
    except OSError:  # opening it tells what is wrong
        return False


def check_output(path: Path) -> None:
    """Raise :class:`FuzzError` if a file cannot be written. It stays as it is."""
    if _is_named_pipe(path):  # opening it would wait for a reader
        raise FuzzError(f"{path}: cannot write it: it is a named pipe")
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            return  # a device or a pipe
        place = path.resolve()
        existed = place.exists()
        with place.open("ab"):
            pass
        if not existed:
            place.unlink()
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise _not_written(path, error) from error


def write_output(path: Path, text: str) -> None:
    """Write a file, which replaces an older one when it is complete. Raises :class:`FuzzError`."""
    from rdmawire.capture.io import STREAM, output_file

    name = os.path.join(os.curdir, STREAM) if str(path) == STREAM else path  # a file of that name
    try:
        with output_file(name) as output:
            output.write(text.encode())
    except CaptureError as error:
        raise FuzzError(str(error)) from error


def make_folder(path: Path) -> None:
    """Make a folder unless it is there. Raises :class:`FuzzError` if no file can be made in it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise FuzzError(f"{path}: cannot write it: it is not a folder") from error
    except OSError as error:
        raise _not_written(path, error) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise FuzzError(f"{path}: cannot write it: no files can be made in this folder")


def _not_written(path: Path, error: Exception) -> FuzzError:
    return FuzzError(f"{path}: cannot write it: {getattr(error, 'strerror', None) or error}")
