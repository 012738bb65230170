"""Lending, comparing and timing on a real GPU, in processes without walls. CUDA is used in children only."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(200)]
PARTS = Path(__file__).with_name("gpu_parts.py")


@pytest.mark.parametrize("part", ["lend", "compare", "block", "ceilings"])
def test_a_part_works_by_itself(part: str) -> None:
    done = subprocess.run([sys.executable, str(PARTS), part], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1])["ok"]
