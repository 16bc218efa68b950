"""Errors survive pickling and copying, so that they come back from other processes."""

import copy
import importlib
import inspect
import pickle
import pkgutil
import subprocess
import sys
import typing
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import product
from typing import Any

import pytest

import rdmawire
from rdmawire import errors
from rdmawire.fuzz.work_model import Problem
from rdmawire.traffic.scenario.document import Mark, Mistake
from tests.waiting import HANG

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
MISTAKE = Mistake("plan.yaml", Mark(3, 4), "a dog", "a cat", "cat")

VALUES: dict[object, list[object]] = {
    str: ["a reason", ""],
    int: [7],
    int | None: [None, 7],
    tuple[str, ...]: [("a", "b"), ()],
    dict[str, Any]: [{"steps": []}],
    Problem: [Problem("memory", "IBA 9.7", "nothing", "a byte")],
    Mark: [Mark(1, 2)],
    Iterable[Mistake]: [[MISTAKE], [MISTAKE, MISTAKE._replace(mark=None)]],
    Collection[str]: [["cat", "cow"], {"cat": 1}.keys()],
}
"""What is given for a parameter of this type."""


def import_all() -> None:
    for module in pkgutil.walk_packages(rdmawire.__path__, "rdmawire."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def subclasses(root: type[BaseException]) -> Iterator[type[BaseException]]:
    for found in root.__subclasses__():
        yield found
        yield from subclasses(found)


def error_classes() -> list[type[BaseException]]:
    """All exceptions of the project, in every module."""
    import_all()
    found = {each for each in subclasses(BaseException) if each.__module__.startswith("rdmawire")}
    return sorted(found, key=lambda each: (each.__module__, each.__qualname__))


def made(kind: type[BaseException]) -> Iterator[BaseException]:
    """Errors of a class, by every shape of its constructor."""
    if not inspect.isfunction(kind.__init__):
        yield from (kind(*args) for args in ((), ("one",), ("one", 2)))
        return
    hints = typing.get_type_hints(kind.__init__)
    parameters = [each for name, each in inspect.signature(kind).parameters.items()]
    needed = [each for each in parameters if each.default is each.empty]
    for chosen in (needed, parameters):
        for values in product(*(VALUES[hints[each.name]] for each in chosen)):
            pairs = list(zip(chosen, values, strict=True))
            args = [value for each, value in pairs if each.kind is not each.KEYWORD_ONLY]
            named = {each.name: value for each, value in pairs if each.kind is each.KEYWORD_ONLY}
            yield kind(*args, **named)


EVERY = [error for kind in error_classes() for error in made(kind)]


def pickled(protocol: int, error: BaseException) -> BaseException:
    found: BaseException = pickle.loads(pickle.dumps(error, protocol))
    return found


COPIES: dict[str, Callable[[BaseException], BaseException]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{f"pickle {protocol}": partial(pickled, protocol) for protocol in PROTOCOLS},
}


def test_there_are_errors_of_every_room() -> None:
    rooms = {type(error).__module__.split(".")[1] for error in EVERY}
    assert {"errors", "dissect", "fabric", "traffic", "wire"} <= rooms
    assert {type(error) for error in EVERY} >= {
        errors.WireError, errors.CaptureError, errors.UnrepresentableError,
        errors.MemoryFault, errors.VerbsError, errors.FabricError,
    }  # fmt: skip


@pytest.mark.parametrize("way", COPIES.values(), ids=list(COPIES))
@pytest.mark.parametrize("noted", [False, True], ids=["", "noted"])
def test_a_copy_is_the_same_error(
    way: Callable[[BaseException], BaseException], noted: bool
) -> None:
    for error in (error for kind in error_classes() for error in made(kind)):
        if noted:
            error.add_note("of frame 3")
        found = way(error)
        assert type(found) is type(error)
        assert str(found) == str(error)
        assert found.args == error.args
        assert vars(found) == vars(error)
        assert getattr(found, "__notes__", None) == getattr(error, "__notes__", None)


POOL = """
import multiprocessing
from tests.test_errors import EVERY

def fail(number):
    raise EVERY[number]

if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(1) as pool:
        for number, error in enumerate(EVERY):
            if isinstance(error, Exception):
                try:
                    pool.apply(fail, (number,))
                except type(error) as found:
                    assert str(found) == str(error) and found.args == error.args, repr(found)
                else:
                    raise AssertionError(f"{error!r} did not come back")
    print(len(EVERY))
"""


def test_an_error_comes_back_from_a_pool() -> None:
    """It hung: a worker's error that cannot be unpickled ends the thread that waits for it."""
    done = subprocess.run(
        [sys.executable, "-c", POOL], capture_output=True, text=True, check=False, timeout=HANG
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(EVERY)
