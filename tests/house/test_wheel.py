"""The wheel, built through the sdist: holds what git has under the four folders, no more and no less, and works."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest
from tree import PRODUCT, ROOT, tracked

BUILD_LIMIT_S = 100


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one sdist and the wheel that was built from it: what `python -m build` makes by default."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-P", "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    (path,) = built.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_exactly_the_files_of_the_four_folders(wheel: zipfile.ZipFile) -> None:
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == {f"kernelgate/{name}" for name in tracked(*PRODUCT)}


def test_the_sdist_holds_the_real_folders_and_the_tests_and_no_links(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as sdist:
        members = [member for member in sdist.getmembers() if not member.isdir()]
    assert [member.name for member in members if member.issym() or member.islnk()] == []
    held = {str(PurePosixPath(*PurePosixPath(member.name).parts[1:])) for member in members}
    added = {"PKG-INFO", "pyproject.toml", "README.md", "LICENSE", ".gitignore"}
    assert held - added == set(tracked(*PRODUCT, "tests"))
    assert added <= held


def test_the_wheel_holds_the_data_that_the_code_reads(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    assert {f"kernelgate/{folder}/py.typed" for folder in PRODUCT} <= names
    tasks = {PurePosixPath(name).parent for name in names if name.endswith("/task.toml")}
    assert len(tasks) >= 6
    assert {str(task / "reference.py") for task in tasks} <= names
    assert any(name.startswith("kernelgate/budget/queries/") and name.endswith(".sql") for name in names)


def test_the_wheel_names_licence_command_and_dependencies(wheel: zipfile.ZipFile) -> None:
    (info,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    metadata = wheel.read(f"{info}/METADATA").decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Dist: mcp<3,>=2.3" in metadata
    assert "kernelgate = kernelgate.server.cli:main" in wheel.read(f"{info}/entry_points.txt").decode()
    assert f"{info}/licenses/LICENSE" in wheel.namelist()


def test_the_server_and_the_bundled_tasks_load_from_the_wheel(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path / "site")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
        "import kernelgate.server.cli as cli, kernelgate.tools.kit.catalogue as catalogue\n"
        "print(cli.__file__); print(catalogue.__file__); print(len(catalogue.find_tools()))"
    )
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    *files, tools = done.stdout.split()
    assert [file for file in files if not file.startswith(str(tmp_path))] == []
    assert tools == "12"
