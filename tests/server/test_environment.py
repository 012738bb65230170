"""What makes a target another one, so that a build is tried again and not answered from the book."""

from pathlib import Path

import pytest

from kernelgate.server.environment import target_of
from kernelgate.tools.kit.build_tools import BUILD_TOOLS, find_build_tools
from kernelgate.tools.kit.wire import DeviceRef

GPU = DeviceRef(kind="cuda", uid="GPU-00")
CPU = DeviceRef(kind="cpu")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder where programs are looked for; empty."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    monkeypatch.delenv("CUDA_PATH", raising=False)
    return tmp_path


def install(place: Path, text: str = "#!/bin/sh\n") -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    place.chmod(0o755)


@pytest.mark.parametrize("name", ["ninja", "g++", "cuda/bin/nvcc"])
def test_a_program_that_is_installed_or_replaced_makes_another_target_of_a_gpu(programs: Path, name: str) -> None:
    ids = [target_of(GPU, "h").environment_id]
    assert target_of(GPU, "h").environment_id == ids[0]
    for text in ("#!/bin/sh\n", "#!/bin/sh\nexec other\n"):
        install(programs / name, text)
        ids.append(target_of(GPU, "h").environment_id)
    (programs / name).unlink()
    assert target_of(GPU, "h").environment_id == ids[0]
    assert len(set(ids)) == 3


def test_on_the_cpu_where_no_extension_is_built_they_do_not_count(programs: Path) -> None:
    before = target_of(CPU, "h").environment_id
    install(programs / "ninja")
    assert target_of(CPU, "h").environment_id == before


def test_a_version_in_the_real_path_is_seen_through_links(programs: Path) -> None:
    for version in ("13.0", "13.1"):
        install(programs / f"cuda-{version}" / "bin" / "nvcc")
    (programs / "cuda").symlink_to("cuda-13.0")
    before = target_of(GPU, "h").environment_id
    (programs / "cuda").unlink()
    (programs / "cuda").symlink_to("cuda-13.1")
    assert target_of(GPU, "h").environment_id != before


def test_what_is_missing_is_found_missing_and_any_of_several_compilers_will_do(programs: Path) -> None:
    assert find_build_tools() == dict.fromkeys(BUILD_TOOLS, "")
    install(programs / "clang++")
    assert find_build_tools()["a C++ compiler"] == str(programs / "clang++")
    assert find_build_tools({"PATH": ""})["a C++ compiler"] == ""
