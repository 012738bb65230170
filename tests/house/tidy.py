"""Questions to a source text that no linter asks. Pure: text in, places out, each as `line: what`."""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Place(NamedTuple):
    """Where something was found."""

    line: int
    what: str


LEFTOVER = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
IGNORE = re.compile(r"#\s*(type:\s*ignore|pyright:\s*ignore|noqa)\b")
EXCUSED = re.compile(
    r"#\s*(type:\s*ignore\[[\w\-, ]+\]|pyright:\s*ignore\[[\w\-, ]+\]|noqa:\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*)"
    r"(\s*(#|--|:)\s*|\s{2,})\w+"  # the reason
)
ELSEWHERE = {
    "a folder of one machine": re.compile(r"(?<![\w.~$}*])/(work|workspace|Users|home/\w+)/|/\.pyenv/"),
    "the host of a package index": re.compile(
        r"\b(pypi|npmjs|anaconda|download\.pytorch)\.org\b|pythonhosted|/simple/"
    ),
    "a page that is not in the repository": re.compile(r"\b(DESIGN|CONTRACT|THREATS|STYLE)(\.md\b|,? (section )?\d)"),
}


def leftovers(text: str) -> list[Place]:
    """Notes to oneself."""
    return [Place(n, line.strip()) for n, line in enumerate(text.splitlines(), 1) if LEFTOVER.search(line)]


def unexcused_ignores(text: str) -> list[Place]:
    """Checks switched off without a code and a reason on the same line."""
    lines = enumerate(text.splitlines(), 1)
    return [Place(n, line.strip()) for n, line in lines if IGNORE.search(line) and not EXCUSED.search(line)]


def words_from_elsewhere(text: str) -> list[Place]:
    """What holds on one machine only, or names what a reader of the repository does not have."""
    return [
        Place(n, f"{what}: {line.strip()}")
        for n, line in enumerate(text.splitlines(), 1)
        for what, pattern in ELSEWHERE.items()
        if pattern.search(line)
    ]


def function_lengths(text: str) -> dict[str, int]:
    """Qualified name of each function, nested ones too → its lines from `def` to the end."""
    return {name: (node.end_lineno or node.lineno) - node.lineno + 1 for name, node in _functions(ast.parse(text), "")}


def without_docstring(text: str) -> list[Place]:
    """Public classes, functions and methods, and the module, that do not say what they are."""
    tree = ast.parse(text)
    missing = [] if ast.get_docstring(tree) or not tree.body else [Place(1, "the module")]
    return missing + [
        Place(node.lineno, name)
        for name, node in _public(tree, "")
        if not ast.get_docstring(node) and not _is_excused(node)
    ]


def swallowed_errors(text: str) -> list[Place]:
    """Handlers that catch everything and do nothing."""
    return [
        Place(node.lineno, "catches everything and does nothing")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"}))
        and all(isinstance(statement, ast.Pass | ast.Continue) for statement in node.body)
    ]


def tests_without_assertion(text: str) -> list[Place]:
    """Test functions in which nothing can fail but by accident."""
    return [
        Place(node.lineno, name)
        for name, node in _functions(ast.parse(text), "")
        if node.name.startswith("test_") and not any(_asserts(inner) for inner in ast.walk(node))
    ]


def _functions(tree: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield prefix + node.name, node
        inner = f"{prefix}{node.name}." if isinstance(node, Function | ast.ClassDef) else prefix
        yield from _functions(node, inner)


def _public(tree: ast.AST, prefix: str) -> Iterator[tuple[str, Function | ast.ClassDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from _public(node, f"{prefix}{node.name}.")


def _is_excused(node: Function | ast.ClassDef) -> bool:
    """An overload or override says nothing that the other one does not."""
    names = {
        d.id if isinstance(d, ast.Name) else d.attr
        for d in node.decorator_list
        if isinstance(d, ast.Name | ast.Attribute)
    }
    return bool(names & {"overload", "override", "setter"})


def _asserts(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        return True
    if not isinstance(node, ast.Call):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return called in {"raises", "warns", "fail"} or called.startswith(("assert", "check", "expect"))
