"""What every test shares. The one place that leaves tests out: `long` ones, and `gpu` ones where there is no device."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

GPU_CONTROL = Path("/dev/nvidiactl")
"""Made by NVIDIA's driver: tells of a GPU without importing torch or waking the device."""

# Two busy cores make any deadline a coin toss; each test has its own time-out. CI draws the same examples each time.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests marked `long` too (make test-long)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    unwanted = {
        "long": not config.getoption("--long"),
        "gpu": not GPU_CONTROL.exists(),
    }
    left_out = [item for item in items if any(unwanted[name] and item.get_closest_marker(name) for name in unwanted)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The server runs on asyncio alone."""
    return "asyncio"
