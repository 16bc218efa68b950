"""Fuzzers of parsers: mutants of a seed corpus for a function or a command.

Four kinds of specification (:func:`rdmawire.fuzz.fuzzer.make_fuzzer`). A list may also be a text
with commas:

- ``parser``: ``function`` is a name in :data:`rdmawire.fuzz.parsers.PARSERS` or
  ``package.module:function``; ``form`` (:data:`rdmawire.fuzz.parser_target.FORMS`), ``expected``
  (names of exceptions), ``seconds``, ``corpus`` (a folder of captures); or ``bug``, that of a
  parser in :data:`rdmawire.fuzz.planted_bugs.PLANTED_BUGS`.
- ``command``: ``command`` (a text or a list of words, with ``{pcap}``), ``statuses``,
  ``patterns``, ``seconds``, ``corpus``, ``link_type`` (that of all frames; 1, Ethernet, by
  default).
- ``codecs``: ``libraries`` (:data:`rdmawire.fuzz.codec_comparison.LIBRARIES`, by default those
  that are installed), ``corpus``.
- ``dissectors``: ``corpus``, ``seconds`` (how long tshark may take for a batch).
"""

import logging
import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from rdmawire.errors import FuzzError
from rdmawire.fuzz.codec_comparison import LIBRARIES, CodecComparison, View, view_of
from rdmawire.fuzz.command_target import DEFAULT_SECONDS as COMMAND_SECONDS
from rdmawire.fuzz.command_target import DISSECTOR_BUG, CommandParser
from rdmawire.fuzz.dissector_comparison import DissectorComparison, is_compared
from rdmawire.fuzz.frame_map import NO_FRAME
from rdmawire.fuzz.frame_mutation import Mutant, mutants_as_json, mutants_from_json
from rdmawire.fuzz.fuzzer import (
    FRAME_INTERVAL_NS,
    Batch,
    BatchFuzzer,
    Found,
    Frame,
    Spec,
    check_settings,
)
from rdmawire.fuzz.isolated_parser import PROCESS, IsolatedParser
from rdmawire.fuzz.minimise import Trials
from rdmawire.fuzz.minimise_mutants import built, minimise_mutants
from rdmawire.fuzz.mutator import Mutator
from rdmawire.fuzz.oracle import TIME, Violation
from rdmawire.fuzz.parser_target import (
    DEFAULT_SECONDS,
    EXPECTED,
    CheckedParser,
    FunctionParser,
    Parser,
    exceptions_named,
    form_named,
    function_named,
)
from rdmawire.fuzz.parsers import PARSERS
from rdmawire.fuzz.planted_bugs import planted, wrong_part
from rdmawire.fuzz.seed_corpus import SeedCorpus, corpus_of
from rdmawire.fuzz.tshark_fields import tshark_values
from rdmawire.terminal import quote, quote_value

_LOG: Final = logging.getLogger(__name__)
_SEQUENCES: Final = 0.15
"""Part of the cases that are sequences of frames."""
_MAX_SECONDS: Final = 1_000_000
"""The longest time limit of a call or a run, in seconds."""
_COMMAND_TRIALS: Final = 60
"""Runs of a command at most to minimise one case."""
_SLOW_TRIALS: Final = {PROCESS: 60, TIME: 12}
"""Trials at most to minimise a case that ends its process, or takes too long: each is slow."""


class ParserFuzzer(BatchFuzzer):
    """Fuzzes a parser with mutants of ``corpus``; at most ``trials`` calls minimise a case."""

    def __init__(self, parser: Parser, corpus: SeedCorpus, trials: int = 1000) -> None:
        self._parser = parser
        self._corpus = corpus
        self._trials = trials

    def check(self) -> None:
        """Raise :class:`FuzzError` if something that the parser needs is missing."""
        if isinstance(self._parser, CheckedParser):
            self._parser.check()

    def parts(self, seed: int, first: int, runs: int) -> Iterator[Batch]:
        """Parse the mutants of some runs."""
        cases = [self.case(seed, run) for run in range(first, first + runs)]
        shown = self._parser.judge_all([built(case) for case in cases])
        for run, (case, violation) in enumerate(zip(cases, shown, strict=True), first):
            found = [Found(violation, mutants_as_json(case), run)] if violation else []
            yield Batch(run, 1, len(case), found)

    def case(self, seed: int, run: int) -> tuple[Mutant, ...]:
        """Return the mutants of a run: one, or a sequence."""
        random = Random(f"{seed}/{run}")  # noqa: S311  must be repeatable
        mutator = Mutator(random, self._corpus)
        if random.random() < _SEQUENCES:
            return mutator.sequence()
        return (mutator.mutant(),)

    def minimised(self, found: Found, trials: Trials | None = None) -> Found:
        """Return a finding with fewer frames and mutations, as ``trials`` allow."""
        mutants, violation = mutants_from_json(found.case), found.violation
        most = min(self._trials, _SLOW_TRIALS.get(violation.what, self._trials))
        left = (Trials() if trials is None else trials).at_most(most)
        best, shown = minimise_mutants(self._parser, mutants, violation, left)
        return Found(shown, mutants_as_json(best), found.run)

    def replay(self, case: Any) -> tuple[Violation | None, list[Frame]]:
        """Parse the frames of a case again."""
        return self._parser.judge(built(mutants_from_json(case))), self.frames(case)

    def frames(self, case: Any) -> list[Frame]:
        """Return the frames of a case, which are not parsed."""
        return [
            Frame(number * FRAME_INTERVAL_NS, data, False, link_type)
            for number, (data, link_type, _) in enumerate(built(mutants_from_json(case)))
            if link_type != NO_FRAME
        ]

    def describe(self, case: Any) -> list[str]:
        """Return a line for each frame: its seed and what was changed."""
        return ["; ".join(one.describe()) for one in mutants_from_json(case)]


def function_fuzzer(spec: Spec) -> ParserFuzzer:
    """Return the fuzzer of a ``parser`` specification. Raises :class:`FuzzError`."""
    check_settings(spec, ("function", "form", "expected", "seconds", "corpus", "bug"))
    if "bug" in spec:
        return _planted_fuzzer(spec)
    name = str(spec.get("function", ""))
    if not name:
        raise FuzzError("the target parser needs a function: use --function")
    known = PARSERS.get(name)
    if known is None and ":" not in name:
        raise FuzzError(
            f"function {quote(name)}: one of {', '.join(PARSERS)}, or package.module:name"
        )
    parser = _function_parser(spec)
    if known is None:
        make = partial(_function_parser, dict(spec), isolated=True)
        return ParserFuzzer(IsolatedParser(make, parser.name, parser.seconds), _corpus(spec))
    return ParserFuzzer(parser, _corpus(spec) if "corpus" in spec else known.corpus())


def _function_parser(spec: Spec, *, isolated: bool = False) -> FunctionParser:
    """Return the parser of a specification with a function. Raises :class:`FuzzError`."""
    name = str(spec["function"])
    known = PARSERS.get(name)
    form = known.form if known and "form" not in spec else str(spec.get("form", "frame"))
    return FunctionParser(
        function_named(name) if known is None else known.function,
        form_named(form),
        expected=exceptions_named(_texts("expected", spec["expected"]))
        if "expected" in spec
        else EXPECTED,
        seconds=_number(spec, "seconds", DEFAULT_SECONDS),
        name=name,
        isolated=isolated,
    )


def _planted_fuzzer(spec: Spec) -> ParserFuzzer:
    """Return the fuzzer of a parser with a planted bug."""
    check_settings(spec, ("seconds", "corpus", "bug"))
    name = str(spec["bug"])
    found = planted(name)
    if (bug := found.parser) is None:
        raise wrong_part(found, "parser")
    function, seconds = bug.check(bug.rules), _number(spec, "seconds", DEFAULT_SECONDS)
    parser = FunctionParser(function, form_named(bug.form), seconds=seconds, name=name)
    return ParserFuzzer(parser, _corpus(spec).with_header(bug.header))


def command_fuzzer(spec: Spec) -> ParserFuzzer:
    """Return the fuzzer of a ``command`` specification. Raises :class:`FuzzError`."""
    settings = ("command", "statuses", "patterns", "seconds", "corpus", "link_type")
    check_settings(spec, settings)
    if "command" not in spec:
        raise FuzzError("the target command needs a command: use --command")
    parser = CommandParser(
        _command_words(spec.get("command", "")),
        statuses=[_integer("statuses", one) for one in words(spec.get("statuses", [0]))],
        patterns=_texts("patterns", spec.get("patterns", [DISSECTOR_BUG])),
        seconds=_number(spec, "seconds", COMMAND_SECONDS),
    )
    link_type = _integer("link_type", spec.get("link_type", 1))
    corpus = _corpus(spec).only(lambda frame: frame.link_type == link_type)
    return ParserFuzzer(parser, corpus, _COMMAND_TRIALS)


def codec_fuzzer(spec: Spec) -> ParserFuzzer:
    """Return the fuzzer of a ``codecs`` specification. Raises :class:`FuzzError`."""
    check_settings(spec, ("libraries", "corpus"))
    named = "libraries" in spec
    views = dict(_views(_texts("libraries", spec.get("libraries", LIBRARIES)), named=named))
    return ParserFuzzer(CodecComparison(views), _corpus(spec))


def dissector_fuzzer(spec: Spec) -> ParserFuzzer:
    """Return the fuzzer of a ``dissectors`` specification. Raises :class:`FuzzError`."""
    check_settings(spec, ("corpus", "seconds"))
    seconds = _number(spec, "seconds", COMMAND_SECONDS)
    corpus = _corpus(spec).only(is_compared)
    parser = DissectorComparison(partial(tshark_values, seconds=seconds))
    return ParserFuzzer(parser, corpus, _COMMAND_TRIALS)


def _views(names: Sequence[str], *, named: bool) -> Iterator[tuple[str, View]]:
    """Yield the views of libraries. One that is not installed is an error if it was ``named``.

    Otherwise it is logged, and only without any library it is an error.
    """
    missing: list[str] = []
    for name in names:
        try:
            yield name, view_of(name)
        except FuzzError as error:
            if named:
                raise
            missing.append(str(error))
    if len(missing) == len(names):
        raise FuzzError("; ".join(missing))
    for line in missing:
        _LOG.warning("%s", line)


def _command_words(command: object) -> list[str]:
    """Return the words of a command: a text as for a shell, or a list."""
    try:
        found = shlex.split(command) if isinstance(command, str) else command
    except ValueError as error:
        raise FuzzError(f"command {quote_value(command)}: {error}") from None
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise FuzzError(f"command: {quote_value(command)} is neither a text nor a list of words")
    return found


def _corpus(spec: Spec) -> SeedCorpus:
    folder = spec.get("corpus")
    if folder is not None and (not isinstance(folder, str) or not folder):
        raise FuzzError(f"corpus: {quote_value(folder)} is not the path of a folder")
    return corpus_of(None if folder is None else Path(folder))


def words(value: object) -> list[Any]:
    """Return the members of a list, or of a text with commas."""
    if isinstance(value, str):
        return [word.strip() for word in value.split(",")]
    if isinstance(value, Sequence):
        return list(value)
    raise FuzzError(f"{quote_value(value)} is not a list")


def _texts(name: str, value: object) -> list[str]:
    """Return the members of a list of texts. Raises :class:`FuzzError` for another list."""
    found = words(value)
    for one in found:
        if one == "":
            raise FuzzError(f"{name}: a name is empty: leave it out")
        if not isinstance(one, str):
            raise FuzzError(f"{name}: {quote_value(one)} is not a text")
    return found


def _integer(name: str, value: object) -> int:
    try:
        return int(str(value), 0)
    except ValueError:
        raise FuzzError(f"{name}: {quote_value(value)} is not an integer") from None


def _number(spec: Spec, name: str, default: float) -> float:
    value = spec.get(name, default)
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise FuzzError(f"{name}: {quote_value(value)} is not a number") from None
    if not 0 < found <= _MAX_SECONDS:
        raise FuzzError(
            f"{name}: {quote_value(value)}: use a number above 0, at most {_MAX_SECONDS}"
        )
    return found
