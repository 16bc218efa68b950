"""Bytes to begin with, as each target takes them: frames and files of the captures, and cases."""

from collections.abc import Callable, Iterator
from functools import partial

from rdmawire.fuzz.parser_target import FORMS
from tools.fuzz.responder import cases
from tools.fuzz.targets import PARSER_TARGETS

_FRAMES_OF_EACH = 12
"""Consecutive frames of a capture in a seed of several."""


def _seeds(name: str) -> Iterator[bytes]:
    target = PARSER_TARGETS[name]
    form, corpus = FORMS[target.form], target.corpus()
    if target.form == "stream":
        for frames in corpus.captures:
            yield from form(frames[:_FRAMES_OF_EACH])
    else:
        yield from form(list(corpus.frames()))


SEEDS: dict[str, Callable[[], Iterator[bytes]]] = {
    **{name: partial(_seeds, name) for name in PARSER_TARGETS},
    "responder": cases,
}
