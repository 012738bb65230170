"""The import contracts of pyproject.toml, tried on a copy: kept by the real tree, broken by each planted violation."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tree import PRODUCT, ROOT

LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The code and its contracts in a folder of their own, so that planting hurts nobody."""
    for folder in PRODUCT:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / ".dev", tmp_path / ".dev", symlinks=True)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def broken_contracts(copy: Path) -> list[str]:
    """Names of the contracts that are broken; the copy stands before the checkout on the path."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", LINT, "--no-cache"],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy / ".dev"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Contracts:" in done.stdout, done.stdout + done.stderr
    broken = [line.partition(" BROKEN")[0] for line in done.stdout.splitlines() if " BROKEN" in line]
    assert (done.returncode != 0) == bool(broken), done.stdout
    return broken


def plant(copy: Path, name: str, line: str) -> None:
    path = copy / name
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")


ONE_WAY = "one way: server, tools, budget, tasks"
WORDS = "tools know the budget's words alone"
NO_TORCH = "no torch outside worker and references"
NO_TORCH_IN_TOOLS = "no torch in tool files"
WORKER_APART = "the server only starts the worker"
TOOLS_ALONE = "tool files stand alone"


def test_the_real_tree_keeps_every_contract(copy: Path) -> None:
    assert broken_contracts(copy) == []


@pytest.mark.parametrize(
    ("name", "line", "contracts"),
    [
        ("tasks/planted.py", "import kernelgate.budget.model", {ONE_WAY}),
        ("budget/planted.py", "from kernelgate.tools.kit import facts", {ONE_WAY}),
        ("tools/kit/planted.py", "import kernelgate.server.app", {ONE_WAY}),
        ("tools/kit/planted.py", "import kernelgate.budget.errors", {WORDS}),
        ("tools/quick_time.py", "from kernelgate.budget.rules import flat", {WORDS}),
        ("server/planted.py", "import torch", {NO_TORCH}),
        ("server/planted.py", "def f():\n    import pynvml", {NO_TORCH}),
        ("budget/planted.py", "from triton import language", {NO_TORCH}),
        ("tasks/planted.py", "import torch.nn.functional as F", {NO_TORCH}),
        ("tools/kit/planted.py", "import torch", {NO_TORCH, NO_TORCH_IN_TOOLS}),
        ("tools/profile.py", "import triton", {NO_TORCH_IN_TOOLS}),
        ("server/planted.py", "import kernelgate.tools.worker.lending", {WORKER_APART}),
        ("tools/quick_time.py", "import kernelgate.tools.profile", {TOOLS_ALONE}),
        ("tools/quick_time.py", "import kernelgate.tools.worker.landlock", {TOOLS_ALONE}),
        ("tools/kit/planted.py", "import kernelgate.tools.job", {TOOLS_ALONE}),
    ],
)
def test_a_planted_import_against_the_rules_is_found(copy: Path, name: str, line: str, contracts: set[str]) -> None:
    plant(copy, name, line)
    assert contracts <= set(broken_contracts(copy))


def test_the_worker_may_import_torch(copy: Path) -> None:
    plant(copy, "tools/worker/planted.py", "import torch, triton, pynvml")
    assert broken_contracts(copy) == []
