"""Kernels of C++ and CUDA extensions, read from what cuobjdump prints (release 13.0) of a shared object."""

from pathlib import Path

import pytest
from test_binaries import put_tools

from kernelgate.tools.worker.extensions import ANY_WARPS, built_in, read_extension_kernels

HEADER = "\nFatbin elf code:\n================\narch = {arch}\ncode version = [1,8]\nhost = linux\n"
USAGE = """
Resource usage:
 Common:
  GLOBAL:0
 Function _Z5spillPf:
  REG:32 STACK:1200 SHARED:2048 LOCAL:16 CONSTANT[0]:544 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function twice:
  REG:10 STACK:0 SHARED:1024 LOCAL:0 CONSTANT[0]:548 TEXTURE:0 SURFACE:0 SAMPLER:0
"""
SASS = """
\tcode for sm_90
\t\tFunction : _Z5spillPf
        /*0000*/                   LDG.E R1, desc[UR4][R2.64] ;
\t\tFunction : twice
        /*0000*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0010*/                   HMMA.16816.F32 R4, R8, R10, R4 ;
"""


def put_extension(cache: Path, name: str = "own") -> Path:
    (cache / name).mkdir(parents=True)
    (cache / name / f"{name}.so").write_bytes(b"\x7fELF")
    (cache / name / "main.o").write_bytes(b"\x7fELF")
    return cache


def prints(*archs: str) -> str:
    usage, sass = ("".join(HEADER.format(arch=arch) + text for arch in archs) for text in (USAGE, SASS))
    return f"if [ $1 = -res-usage ]; then cat <<'END'\n{usage}END\nelse cat <<'END'\n{sass}END\nfi"


def test_registers_spills_shared_memory_and_instructions_of_each_kernel_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_tools(monkeypatch, tmp_path / "tools", cuobjdump=prints("sm_90a"))
    (spill, twice), notes = read_extension_kernels(put_extension(tmp_path / "cache"))
    assert (spill.name, spill.target, spill.registers, spill.spill_bytes) == ("_Z5spillPf", "sm_90", 32, 1216)
    assert (spill.shared_bytes, spill.warps, twice.shared_bytes) == (1024, ANY_WARPS, 0)
    assert (spill.tensor_cores, spill.vector_loads) == (False, False)
    assert (twice.tensor_cores, twice.vector_loads) == (True, True)
    assert notes == ()


def test_each_architecture_has_its_own_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_tools(monkeypatch, tmp_path / "tools", cuobjdump=prints("sm_80", "sm_90"))
    kernels, _ = read_extension_kernels(put_extension(tmp_path / "cache"))
    assert [kernel.target for kernel in kernels if kernel.name == "twice"] == ["sm_80", "sm_90"]


def test_an_extension_without_device_code_has_no_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_tools(monkeypatch, tmp_path / "tools", cuobjdump="exit 255")
    assert read_extension_kernels(put_extension(tmp_path / "cache")) == ((), ())


def test_without_cuobjdump_a_note_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_tools(monkeypatch, tmp_path / "tools")
    kernels, (note,) = read_extension_kernels(put_extension(tmp_path / "cache"))
    assert (kernels, "install the CUDA toolkit" in note) == ((), True)
    assert read_extension_kernels(tmp_path / "absent") == ((), ())


def test_of_many_extensions_the_first_are_read_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_tools(monkeypatch, tmp_path / "tools", cuobjdump=prints("sm_90"))
    for name in "abcdef":
        put_extension(tmp_path / "cache", name)
    kernels, notes = read_extension_kernels(tmp_path / "cache")
    assert (len(kernels), notes) == (8, ("not all kernels of 6 extensions were read",))


def test_what_is_a_link_is_no_extension(tmp_path: Path) -> None:
    put_extension(tmp_path / "cache")
    (tmp_path / "cache" / "own" / "other.so").symlink_to("/etc/passwd")
    (tmp_path / "cache" / "far").symlink_to("/usr/lib")
    assert built_in(tmp_path / "cache") == ("own",)
