"""Reading a reference file without running it: its constants, what it lacks, what it imports, how it is made smaller.

A reference file has the form of a KernelBench problem: a class `Model`, functions `get_inputs` and `get_init_inputs`,
and constants at the top level that both use. Everything here is a pure function of the text.
"""

import ast
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeGuard

from kernelgate.tasks.model import Override

SMALL_LIMIT_BYTES: Final = 64 << 20
"""Inputs and outputs of the workload `small` together: a CPU makes, copies and compares that in well under a second."""
MAX_SHRINK_STEPS: Final = 64
"""The largest problems known need about 20 halvings; each step may cost its caller a fake forward."""
SMALLEST_SIZE: Final = 8
"""Constants are not all halved below this: what is left then has lost its shape."""
REQUIRED: Final = {
    "Model": "class Model",
    "get_inputs": "function get_inputs()",
    "get_init_inputs": "function get_init_inputs()",
}
_MAX_FOLDED: Final = 1 << 62
"""Arithmetic over literals is followed up to here: sizes are far below, and `9**9**9` must not be computed."""
_MAX_EXPONENT: Final = 64


class SourceError(ValueError):
    """The text is not Python, or has no such constant. The message is one clear sentence."""


@dataclass(frozen=True)
class _Slot:
    """A right-hand side that belongs to one name."""

    name: str
    node: ast.expr


def constants(source: str) -> dict[str, Override]:
    """The top-level constants with a literal value, in order: numbers, strings, tuples and lists (as tuples) of them.

    Arithmetic over literals counts (`2048 * 2`); what is derived from another name does not, since it follows that
    name. Of several assignments to a name the last counts; a name that is also changed by `+=` and the like is left
    out. Raises `SourceError` if the text is not Python.
    """
    tree = _parsed(source)
    found: dict[str, Override] = {}
    for slot in _slots(tree):
        value = _folded(slot.node)
        found.pop(slot.name, None)
        if value is not None:
            found[slot.name] = value
    return found


def used_constants(source: str) -> dict[str, Override]:
    """Those of `constants` that something in the file reads. Raises `SourceError` if the text is not Python."""
    used = {
        node.id for node in ast.walk(_parsed(source)) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    return {name: value for name, value in constants(source).items() if name in used}


def with_overrides(source: str, overrides: Mapping[str, Override]) -> str:
    """The source with the right-hand side of the named top-level assignments replaced; line numbers stay.

    Constants derived from an overridden one follow when the file runs. A list stays a list. Raises `SourceError` if
    the text is not Python, a name is not assigned at the top level (the message lists the names that are), two
    overrides meet in one expression (`a = b = 3`), or a value is not finite.
    """
    if not overrides:
        return source
    text = _with_plain_newlines(source)
    slots = _slots(_parsed(source))
    names = list(dict.fromkeys(slot.name for slot in slots))
    for name in overrides:
        if name not in names:
            known = ", ".join(names) if names else "none"
            raise SourceError(f"no constant {name!r} is assigned at the top level of the reference; there are: {known}")
    lines = [line.encode() for line in text.split("\n")]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    edits: dict[tuple[int, int], str] = {}
    for slot in slots:
        if slot.name in overrides:
            span = _span(slot.node, starts)
            literal = _literal(overrides[slot.name], as_list=isinstance(slot.node, ast.List))
            if edits.setdefault(span, literal) != literal:
                raise SourceError(f"{slot.name!r} shares its assignment with another overridden constant")
    return _spliced(text.encode(), edits).decode()


def defined_names(source: str) -> frozenset[str]:
    """Names that the top level binds: classes, functions, imports, constants. Raises `SourceError` if not Python."""
    return frozenset(_bound_names(_parsed(source).body))


def missing_pieces(source: str) -> list[str]:
    """What keeps the text from being a reference file, one sentence each; empty if nothing does."""
    try:
        tree = _parsed(source)
    except SourceError as error:
        return [str(error)]
    bound = _bound_names(tree.body)
    missing = [f"the reference defines no {what}" for name, what in REQUIRED.items() if name not in bound]
    missing.extend(
        f"line {node.lineno} imports from a neighbouring file; a reference must be one file"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level > 0
    )
    return missing


def imported_modules(source: str) -> tuple[str, ...]:
    """Names of the top-level modules that the file needs, sorted; imports anywhere in it count.

    Those inside a `try` that catches the failing import are not needed. Raises `SourceError` if the text is not
    Python.
    """
    tree = _parsed(source)
    optional = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.Try) and any(_catches_import_error(handler) for handler in node.handlers)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    names: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in optional:
            continue
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return tuple(sorted(names))


def shrink_steps(source: str) -> Iterator[dict[str, Override]]:
    """Overrides that make the problem smaller step by step; the first is empty, the file as it is.

    Each step halves the largest integer among the constants that are used, equal values together (a size shared by
    two constants, or by elements of tuples, stays shared), down to `SMALLEST_SIZE`. Then, for files whose sizes must
    keep a ratio, the first constant alone is halved (the batch, by convention). At most `MAX_SHRINK_STEPS` in all.
    Whether a step makes sense is for the caller to find out: some constants must divide others, so a step may fail
    and a later one work. Raises `SourceError` if the text is not Python.
    """
    original = used_constants(source)
    walks = itertools.chain([original], _largest_halved(original), _first_halved(original))
    for step in itertools.islice(walks, MAX_SHRINK_STEPS):
        yield {name: value for name, value in step.items() if value != original[name]}


def even_steps(source: str) -> Iterator[dict[str, Override]]:
    """Overrides that halve all constants at once, so that one keeps its ratio to another; the first is one step small.

    A constant of `SMALLEST_SIZE` or less stays. For files that `shrink_steps` make so small that nothing is left of
    them: of a channel for each group, say. Raises `SourceError` if the text is not Python.
    """
    original = current = used_constants(source)
    while _largest(current.values()) > SMALLEST_SIZE:
        current = {name: _all_halved(value) for name, value in current.items()}
        yield {name: value for name, value in current.items() if value != original[name]}


def halvable_constants(source: str) -> tuple[str, ...]:
    """The constants that `shrink_steps` may make smaller, in their order. Raises `SourceError` as it does."""
    halved = {name for step in shrink_steps(source) for name in step}
    return tuple(name for name in constants(source) if name in halved)


def _largest_halved(current: dict[str, Override]) -> Iterator[dict[str, Override]]:
    while (largest := _largest(current.values())) > SMALLEST_SIZE:
        current = {name: _halved(value, largest) for name, value in current.items()}
        yield current


def _first_halved(original: dict[str, Override]) -> Iterator[dict[str, Override]]:
    name, value = next(((name, value) for name, value in original.items() if _largest([value]) > 1), ("", 1))
    while (largest := _largest([value])) > 1:
        value = _halved(value, largest)
        yield {**original, name: value}


def _parsed(source: str) -> ast.Module:
    """The syntax tree; every way in which a text can fail to be Python becomes a `SourceError`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape in somebody's docstring is not our user's business
            return ast.parse(_with_plain_newlines(source))
    except SyntaxError as error:
        raise SourceError(f"syntax error at line {error.lineno or 1}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        why = str(error) or "nested too deeply"
        raise SourceError(f"not readable as Python: {why}") from None


def _with_plain_newlines(source: str) -> str:
    return source.replace("\r\n", "\n").replace("\r", "\n")


def _slots(tree: ast.Module) -> list[_Slot]:
    """Right-hand sides at the top level that can be replaced, in order; `a, b = 1, 2` has two."""
    slots: list[_Slot] = []
    changed = {
        statement.target.id
        for statement in tree.body
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name)
    }
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                slots.extend(_paired(target, statement.value))
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            slots.extend(_paired(statement.target, statement.value))
    return [slot for slot in slots if slot.name not in changed]


def _paired(target: ast.expr, value: ast.expr) -> Iterator[_Slot]:
    """Names of a target with the expression that each gets; nothing where they cannot be told apart."""
    if isinstance(target, ast.Name):
        yield _Slot(target.id, value)
    elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        starred = any(isinstance(item, ast.Starred) for item in (*target.elts, *value.elts))
        if not starred and len(target.elts) == len(value.elts):
            for inner_target, inner_value in zip(target.elts, value.elts, strict=True):
                yield from _paired(inner_target, inner_value)


def _folded(node: ast.expr) -> Override | None:
    """The value of a literal, or of arithmetic over literal numbers; None for anything else."""
    if isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        return value if isinstance(value, int | str) else None
    if isinstance(node, ast.Tuple | ast.List):
        items = [_folded(item) for item in node.elts]
        present = tuple(item for item in items if item is not None)
        return present if len(present) == len(items) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        number = _number(node.operand)
        return None if number is None else (-number if isinstance(node.op, ast.USub) else number)
    return _arithmetic(node) if isinstance(node, ast.BinOp) else None


def _arithmetic(node: ast.BinOp) -> int | float | None:
    left, right = _number(node.left), _number(node.right)
    if left is None or right is None:
        return None
    try:
        value = _applied(node.op, left, right)
    except (ArithmeticError, ValueError):
        return None
    return value if value is not None and abs(value) <= _MAX_FOLDED else None


def _applied(op: ast.operator, left: int | float, right: int | float) -> int | float | None:
    match op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div():
            return left / right
        case ast.FloorDiv():
            return left // right
        case ast.Mod():
            return left % right
        case ast.Pow() if isinstance(left, int) and isinstance(right, int) and 0 <= right <= _MAX_EXPONENT:
            return int(left**right)
        case _:
            return None


def _number(node: ast.expr) -> int | float | None:
    """A number small enough to calculate with."""
    value = _folded(node)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= _MAX_FOLDED else None


def _span(node: ast.expr, starts: list[int]) -> tuple[int, int]:
    """Bytes of an expression in the text, from the starts of its lines."""
    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
    return starts[node.lineno - 1] + node.col_offset, starts[end_line - 1] + end_column


def _literal(value: Override, *, as_list: bool = False) -> str:
    """Python source of a value."""
    if isinstance(value, tuple):
        inner = ", ".join(_literal(item) for item in value)
        if as_list:
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, float) and not math.isfinite(value):
        raise SourceError(f"a constant cannot be overridden with {value}: give a finite number")
    return repr(value)


def _spliced(text: bytes, edits: dict[tuple[int, int], str]) -> bytes:
    """Replace the spans, last first; a replaced span of several lines keeps its line breaks, so that lines stay."""
    done_from = len(text)
    for (start, end), literal in sorted(edits.items(), reverse=True):
        if end > done_from:
            raise SourceError("two overridden constants share parts of one assignment")
        breaks = text.count(b"\n", start, end)
        new = f"({literal}{chr(10) * breaks})" if breaks else literal
        text = text[:start] + new.encode() + text[end:]
        done_from = start
    return text


def _bound_names(body: list[ast.stmt]) -> set[str]:
    """Names that the top level of a module binds, also inside its `if`, `try` and `with`."""
    names: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef):
            names.add(statement.name)
            continue
        if isinstance(statement, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name).partition(".")[0] for alias in statement.names)
        elif isinstance(statement, ast.Assign):
            names.update(node.id for target in statement.targets for node in ast.walk(target) if _is_store(node))
        blocks = [getattr(statement, field, []) for field in ("body", "orelse", "finalbody")]
        names.update(name for block in blocks for name in _bound_names(block))
    return names


def _is_store(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _catches_import_error(handler: ast.ExceptHandler) -> bool:
    caught = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
    if handler.type is None:
        return True
    return any(isinstance(node, ast.Name) and node.id in caught for node in ast.walk(handler.type))


def _sizes(value: Override) -> Iterator[int]:
    """The integers in a value; bool is none."""
    if isinstance(value, tuple):
        for item in value:
            yield from _sizes(item)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value


def _largest(values: Iterable[Override]) -> int:
    return max((size for value in values for size in _sizes(value)), default=0)


def _all_halved(value: Override) -> Override:
    if isinstance(value, tuple):
        return tuple(_all_halved(item) for item in value)
    if isinstance(value, int) and not isinstance(value, bool) and value > SMALLEST_SIZE:
        return value // 2
    return value


def _halved(value: Override, largest: int) -> Override:
    if isinstance(value, tuple):
        return tuple(_halved(item, largest) for item in value)
    if isinstance(value, int) and not isinstance(value, bool) and value == largest:
        return max(1, value // 2)
    return value
