"""A few parts run again do not lose the others, nor when those were run."""

import json
import shutil
import sys
from pathlib import Path

import gpu_path as gpu_path  # before the package
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import write_figures
from measurement import FOLDER


@pytest.fixture
def written(tmp_path: Path) -> Path:
    return Path(shutil.copy(FOLDER / "gpu_candidate_cost.json", tmp_path / "written.json"))


def test_one_part_alone_is_taken_over_and_the_others_keep_their_figures_and_dates(
    tmp_path: Path, written: Path
) -> None:
    before = json.loads(written.read_text())
    (tmp_path / "part").mkdir()
    problem = before["raw"]["kernelbench"][0]
    (tmp_path / "part/kernelbench.json").write_text(json.dumps([{**problem, "source_to_quick_s": 1234.5, "again": []}]))
    write_figures.main(str(tmp_path / "part"), written)
    after = json.loads(written.read_text())
    assert after["figures"][f"source_to_quick_s_{problem['problem']}"] == 1234.5
    kept = [name for name in before["figures"] if "kernelbench" not in name and "quick" not in name]
    assert kept
    assert {name: after["figures"][name] for name in kept} == {name: before["figures"][name] for name in kept}
    earlier = before["raw"]["of_an_earlier_run"]
    dates = after["raw"]["of_an_earlier_run"]
    assert dates["gpu_host"] == earlier.get("gpu_host", before["date_utc"])
    assert "kernelbench" not in dates
    assert after["host"] == before["host"]
