"""Every test can be collected on an offline GPU host, which has few packages beside the product's own."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tree import ROOT

TESTS: Final = ROOT / "tests"
THERE: Final = frozenset({"pytest", "hypothesis", "numpy", "rich", "click", "torch", "triton", "pynvml"})
"""With a GPU image and its torch."""
BROUGHT: Final = frozenset({"kernelgate", "mcp", "anyio", "pydantic", "sqlite_utils", "httpx2", "starlette", "uvicorn"})
"""As wheels: the product, what it depends on, and what that brings."""


def imported_at_the_top(path: Path) -> Iterator[str]:
    """Packages and modules that loading a file loads."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def loaded_by_collecting() -> dict[str, str]:
    """Package → the file of the tests that imports it, of all that is loaded before the first test runs."""
    own = {path.stem: path for path in (*TESTS.rglob("*.py"), *(ROOT / "examples").rglob("*.py"))}
    waiting = [path for name, path in own.items() if name.startswith("test_") or name == "conftest"]
    seen: set[Path] = set()
    found: dict[str, str] = {}
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        for name in imported_at_the_top(path):
            if name in own:
                waiting.append(own[name])
            elif name not in sys.stdlib_module_names:
                found.setdefault(name, str(path.relative_to(ROOT)))
    return found


def test_collecting_the_tests_imports_nothing_that_an_offline_gpu_host_lacks() -> None:
    found = loaded_by_collecting()
    assert {"torch", "pytest", "mcp"} <= set(found)
    assert {name: path for name, path in found.items() if name not in THERE | BROUGHT} == {}
