"""The mutants of a source: each is one small change to one expression or statement.

Constants, comparisons, operators, conditions, returned values, calls and assignments to attributes
are changed; texts, messages of errors, annotations and ``__slots__`` are not.
"""

import ast
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr,
}  # fmt: skip
_SKIPPED = (ast.Raise, ast.JoinedStr, ast.Assert, ast.Import, ast.ImportFrom)
"""Nodes whose parts are not mutated."""


class Mutant(NamedTuple):
    """``was`` at ``start`` (an offset in the source, in characters) becomes ``becomes``."""

    line: int
    start: int
    was: str
    becomes: str

    def applied(self, source: str) -> str:
        """The source with the change in it."""
        return source[: self.start] + self.becomes + source[self.start + len(self.was) :]


def described(file: str, mutant: Mutant) -> str:
    """Where a mutant is, and what it changes."""
    return f"{file}:{mutant.line}\n  - {mutant.was}\n  + {mutant.becomes}"


@cache
def mutants(source: str) -> tuple[Mutant, ...]:
    """Every mutant of a source that can still be compiled, in the order of its lines."""
    starts = _line_starts(source)
    found = []
    for node, changed in _changed(ast.parse(source)):
        text = ast.get_source_segment(source, node)
        start = starts[node.lineno - 1] + _characters(source, starts, node)
        if text is not None and text != changed:
            found.append(Mutant(node.lineno, start, text, changed))
    return tuple(each for each in dict.fromkeys(found) if _compiles(each.applied(source)))


def _line_starts(source: str) -> list[int]:
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _characters(source: str, starts: list[int], node: Any) -> int:
    """Where a node begins in its line; the syntax tree counts in bytes."""
    line = source[starts[node.lineno - 1] : starts[node.lineno]]
    return len(line.encode()[: node.col_offset].decode())


def _compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def _changed(tree: ast.AST) -> Iterator[tuple[Any, str]]:
    """Nodes of a tree, each with the text of a change."""
    for child in _looked_at(tree):
        if type(child) in _CHANGES:
            yield from ((child, text) for text in _CHANGES[type(child)](child))
        if isinstance(child, ast.If | ast.While | ast.IfExp):
            yield from ((child.test, text) for text in _tested(child.test))
        yield from _changed(child)


def _looked_at(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node, but for annotations, docstrings, decorators and declared names."""
    unread = {"annotation", "returns", "decorator_list", "type_params"}
    for name, value in ast.iter_fields(node):
        parts = value if isinstance(value, list) else [value]
        yield from (
            part
            for part in parts
            if name not in unread
            and isinstance(part, ast.AST)
            and not isinstance(part, _SKIPPED)
            and not _is_declared(part)
        )


def _is_declared(node: ast.AST) -> bool:
    """A docstring, ``__slots__`` or the names of a module."""
    if isinstance(node, ast.Assign):
        return any(isinstance(to, ast.Name) and to.id.startswith("__") for to in node.targets)
    if not isinstance(node, ast.Expr):
        return False
    return isinstance(node.value, ast.Constant)


def _constant(node: ast.Constant) -> Iterator[str]:
    if isinstance(node.value, bool):
        yield str(not node.value)
    elif isinstance(node.value, int):
        yield str(node.value + 1)


def _compare(node: ast.Compare) -> Iterator[str]:
    for at, op in enumerate(node.ops):
        if type(op) in _COMPARISONS:
            ops = [*node.ops[:at], _COMPARISONS[type(op)](), *node.ops[at + 1 :]]
            yield _parenthesized(ast.Compare(node.left, ops, node.comparators))


def _boolean(node: ast.BoolOp) -> Iterator[str]:
    op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
    yield _parenthesized(ast.BoolOp(op, node.values))


def _binary(node: ast.BinOp) -> Iterator[str]:
    if type(node.op) in _OPERATORS:
        yield _parenthesized(ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right))


def _unary(node: ast.UnaryOp) -> Iterator[str]:
    yield _parenthesized(node.operand)


def _augmented(node: ast.AugAssign) -> Iterator[str]:
    if type(node.op) in _OPERATORS:
        yield ast.unparse(ast.AugAssign(node.target, _OPERATORS[type(node.op)](), node.value))
    yield "pass"


def _assigned(node: ast.Assign) -> Iterator[str]:
    if any(isinstance(to, ast.Attribute | ast.Subscript) for to in node.targets):
        yield "pass"


def _called(node: ast.Expr) -> Iterator[str]:
    if isinstance(node.value, ast.Call):
        yield "pass"


def _returned(node: ast.Return) -> Iterator[str]:
    """``None`` is returned, unless that is equal or false as well."""
    if node.value is not None and ast.unparse(node.value) not in ("None", "False"):
        yield "return None"


def _left(node: ast.Break | ast.Continue) -> Iterator[str]:
    yield "continue" if isinstance(node, ast.Break) else "break"


def _tested(test: ast.expr) -> Iterator[str]:
    """The negated condition, unless another change negates it."""
    if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):
        yield _parenthesized(ast.UnaryOp(ast.Not(), test))


def _parenthesized(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"


_CHANGES: dict[type[ast.AST], Callable[[Any], Iterator[str]]] = {
    ast.Constant: _constant,
    ast.Compare: _compare,
    ast.BoolOp: _boolean,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.AugAssign: _augmented,
    ast.Assign: _assigned,
    ast.Expr: _called,
    ast.Return: _returned,
    ast.Break: _left,
    ast.Continue: _left,
}
