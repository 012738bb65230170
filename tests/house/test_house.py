"""The house rules, asked of the real tree. What each is for stands in tests/README.md."""

import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import tidy
from tree import PRODUCT, ROOT, tracked

from kernelgate.tools.kit.catalogue import find_tools

ASKING = {"tests/house/tidy.py", "tests/house/test_tidy.py"}
"""They hold the very words that they look for."""
READ = (*PRODUCT, "tests", "examples")
"""The folders of our own code."""
FUNCTION_LINES = 60
FILE_LINES = 400
LONGER: dict[str, int] = {}
"""The ratchet: file, or `file:function`, → the lines that it has today. A number here may only go down."""


def code(*folders: str) -> list[str]:
    return [name for name in tracked(*folders) if name.endswith(".py")]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def found(names: list[str], ask: Callable[[str], list[tidy.Place]]) -> list[str]:
    return [f"{name}:{place.line} {place.what}" for name in names for place in ask(text_of(name))]


def is_reference(name: str) -> bool:
    """A task's reference has KernelBench's form, not ours."""
    return name.startswith("tasks/") and name.endswith("/reference.py")


def measured_lengths() -> dict[str, int]:
    """File, and `file:function`, → lines, for all that is over the limits."""
    lengths: dict[str, int] = {}
    for name in code(*READ):
        text = text_of(name)
        lengths[name] = text.count("\n")
        lengths |= {f"{name}:{function}": lines for function, lines in tidy.function_lengths(text).items()}
    return {
        place: lines for place, lines in lengths.items() if lines > (FUNCTION_LINES if ":" in place else FILE_LINES)
    }


def test_functions_and_files_stay_short_enough_to_read() -> None:
    assert {place: lines for place, lines in measured_lengths().items() if lines > LONGER.get(place, 0)} == {}


def test_the_ratchet_holds_no_more_than_is_needed() -> None:
    lengths = measured_lengths()
    assert {place: lines for place, lines in LONGER.items() if lengths.get(place, 0) < lines} == {}


def test_no_notes_to_oneself_are_left() -> None:
    assert found([name for name in code(*READ) if name not in ASKING], tidy.leftovers) == []


def test_every_check_that_is_switched_off_says_which_and_why() -> None:
    assert found(code(*READ), tidy.unexcused_ignores) == []


def test_no_file_speaks_of_one_machine_or_of_pages_that_are_not_here() -> None:
    suffixes = {".py", ".toml", ".sql", ".md", ".txt", ".json", ""}
    names = [name for name in tracked() if Path(name).suffix in suffixes and name not in ASKING]
    assert found(names, tidy.words_from_elsewhere) == []


def test_public_names_say_what_they_are() -> None:
    assert found([name for name in code(*PRODUCT) if not is_reference(name)], tidy.without_docstring) == []


def test_no_error_is_swallowed_whole() -> None:
    assert found(code(*PRODUCT), tidy.swallowed_errors) == []


def test_every_test_can_fail() -> None:
    assert (
        found([name for name in code("tests") if Path(name).name.startswith("test_")], tidy.tests_without_assertion)
        == []
    )


def test_each_tool_and_each_other_list_has_its_snapshot_and_no_snapshot_is_left_over() -> None:
    snapshots = {path.stem for path in (ROOT / "tests/snapshots").glob("*.json")}
    assert snapshots == {tool.name for tool in find_tools()} | {"prompts", "resources", "resource_templates"}


def test_the_development_links_lead_to_the_real_folders() -> None:
    links = {path.name: path.readlink() for path in (ROOT / ".dev/kernelgate").iterdir()}
    assert links == {name: Path("../..") / name for name in PRODUCT}


def test_every_folder_of_code_tells_type_checkers_that_it_is_typed() -> None:
    assert [name for name in PRODUCT if not (ROOT / name / "py.typed").is_file()] == []


@pytest.mark.parametrize("module", ["server.app", "server.cli", "server.doctor", "server.clients"])
def test_the_server_starts_without_torch(module: str) -> None:
    program = f"import sys, kernelgate.{module}; print([m for m in ('torch', 'triton', 'pynvml') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


def test_continuous_integration_runs_what_a_developer_runs() -> None:
    commands = [line for line in text_of(".ci/run").splitlines() if line and not line.startswith("#")]
    assert commands == ["set -euo pipefail", 'cd "$(dirname "${BASH_SOURCE[0]}")/.."', "exec make test"]


def test_every_dependency_has_its_reason_in_a_decision_record() -> None:
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    records = "\n".join(text_of(name) for name in tracked("docs/decisions"))
    names = [wanted.split(">")[0].split("[")[0] for wanted in project["dependencies"]]
    assert [name for name in names if f"| {name} |" not in records] == []
