"""What is installed on this host: read from its files, never imported."""

import ast
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path


def package_version(name: str) -> str:
    """Of an installed distribution, or `absent`."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def torch_cuda() -> str | None:
    """The CUDA version that torch was built for, from its `torch/version.py`; empty: without; None: not known."""
    try:
        text = Path(str(distribution("torch").locate_file("torch/version.py"))).read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (PackageNotFoundError, OSError, SyntaxError):
        return None
    for node in tree.body:
        target = (
            node.target
            if isinstance(node, ast.AnnAssign)
            else node.targets[0]
            if isinstance(node, ast.Assign)
            else None
        )
        if isinstance(target, ast.Name) and target.id == "cuda" and isinstance(node, ast.AnnAssign | ast.Assign):
            value = node.value.value if isinstance(node.value, ast.Constant) else None
            return value if isinstance(value, str) else ""
    return None
