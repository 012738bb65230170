"""One supervisor of the CPU for the whole corpus."""

import os
from collections.abc import Iterator

import pytest
from court import Court

from kernelgate.tools.kit.wire import DeviceRef


@pytest.fixture(scope="session")
def court() -> Iterator[Court]:
    # The supervisor's environment is scrubbed: this is what a candidate looks for.
    os.environ["KERNELGATE_CORPUS_SECRET"] = "to be had"
    opened = Court(DeviceRef(kind="cpu"))
    yield opened
    opened.close()
    del os.environ["KERNELGATE_CORPUS_SECRET"]
