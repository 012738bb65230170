"""One supervisor of the first GPU for all tests of this folder."""

from collections.abc import Iterator

import pytest
from gpu_calls import Gpu, first_gpu


@pytest.fixture(scope="session")
def gpu() -> Iterator[Gpu]:
    device = first_gpu()
    assert device is not None, "the driver is loaded, but nvidia-smi lists no GPU"
    opened = Gpu(device)
    yield opened
    opened.close()
