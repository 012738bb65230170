from pathlib import Path

import pytest

from kernelgate.server.counters_check import read_access


def parameters(folder: Path, value: str) -> Path:
    file = folder / "params"
    file.write_text(f"EnableMSI: 1\nRmProfilingAdminOnly: {value}\nDmaRemapPeerMmio: 1\n", encoding="utf-8")
    return file


def test_without_the_library_the_advice_names_the_folder_that_profile_looks_into(tmp_path: Path) -> None:
    access = read_access(tmp_path, parameters(tmp_path, "0"))
    assert f"pip install --target {tmp_path / 'counters'}" in access.advice


@pytest.mark.parametrize(("value", "said"), [("0", ""), ("1", "NVreg_RestrictProfilingToAdminUsers=0")])
def test_a_library_beside_the_ledger_counts_and_the_driver_may_still_forbid_it(
    tmp_path: Path, value: str, said: str
) -> None:
    (tmp_path / "counters" / "cupti_python-13.4.0.dist-info").mkdir(parents=True)
    access = read_access(tmp_path, parameters(tmp_path, value))
    assert access.library == "13.4.0"
    assert (said in access.advice) if said else access.advice == ""


def test_a_host_without_the_driver_is_not_said_to_forbid_anything(tmp_path: Path) -> None:
    assert not read_access(tmp_path, tmp_path / "nowhere").administrators_only
