"""Mutators of the targets' bytes that know the header tables, for atheris.

Each returns other bytes for given ones, from a random generator. Targets without one are mutated by
libFuzzer alone.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from rdmawire.decode import LINK_TYPES
from rdmawire.fuzz.frame_mutation import SeedFrame
from rdmawire.fuzz.mutator import Mutator
from rdmawire.fuzz.parser_target import FORMS, stream_form
from rdmawire.fuzz.parsers import frames_of_stream
from rdmawire.fuzz.seed_corpus import corpus_of
from tools.fuzz.responder import mutated_case
from tools.fuzz.targets import PARSER_TARGETS

Mutate = Callable[[bytes, Random], bytes]


def _linked(data: bytes, random: Random) -> bytes:
    """Mutate a frame after the index of its link type."""
    link_types = sorted(LINK_TYPES)
    first = data[0] if data else 0
    frame = SeedFrame(data[1:], link_types[first % len(link_types)])
    return bytes((first,)) + Mutator(random, corpus_of()).mutate(frame).build()


def _stream(data: bytes, random: Random) -> bytes:
    """Mutate one of several frames, each after its length."""
    frames = list(frames_of_stream(data)) or [b""]
    place = random.randrange(len(frames))
    frames[place] = Mutator(random, corpus_of()).mutate(SeedFrame(frames[place])).build()
    return next(stream_form([SeedFrame(frame) for frame in frames]))


def _other(data: bytes, random: Random, form: str) -> bytes:
    """Return the part of another frame, mutated: a part alone does not say what it is."""
    mutant = Mutator(random, corpus_of()).mutant()
    frame = mutant.seed._replace(data=mutant.build())
    return next(FORMS[form]([frame]), data)


_BY_FORM: Final[dict[str, Mutate]] = {
    "linked": _linked,
    "stream": _stream,
    **{form: partial(_other, form=form) for form in ("packet", "message", "segment")},
}
MUTATORS: Final[dict[str, Mutate]] = {
    **{name: _BY_FORM[one.form] for name, one in PARSER_TARGETS.items() if one.form in _BY_FORM},
    "responder": mutated_case,
}
"""The mutator of each target that has one."""


def mutate(name: str, data: bytes, max_size: int, seed: int) -> bytes | None:
    """Mutate the bytes of a target by its tables, at most ``max_size`` of them.

    ``None`` means that libFuzzer is to mutate them: every second time, and without a mutator.
    """
    random = Random(seed)
    if name not in MUTATORS or random.random() < 0.5:
        return None
    return MUTATORS[name](data, random)[:max_size]
