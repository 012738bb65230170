"""What a candidate costs on the CPU device, supervisor warm, and how long the demo takes: cpu_candidate_cost.json."""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measurement import plain_python_loop_ms, with_pace, write_measurement
from stdio_server import SOFTMAX, milliseconds, stdio_server

CANDIDATES = 10
DUPLICATES = 30
CLIMBED = ("compile", "check", "quick")


def climb_s(folder: Path) -> tuple[list[float], list[float], list[list[float]]]:
    """Seconds from source to quick class of new candidates, milliseconds of duplicates, charged seconds per rung."""
    new_s: list[float] = []
    charged: list[list[float]] = []
    with stdio_server(folder) as server:
        server.greet()
        run_id = server.call("start_run", task="softmax")["run"]["run_id"]

        def submit(number: int) -> dict[str, object]:
            source = SOFTMAX.format(body=f"torch.softmax(x, dim=-1) + {number} * 0.0")
            return server.call("compile", run_id=run_id, source=source, up_to="quick_time", wait_s=60)

        submit(0)
        for number in range(1, CANDIDATES + 1):
            began_s = time.perf_counter()
            reply = submit(number)
            new_s.append(time.perf_counter() - began_s)
            steps: list[dict[str, float]] = reply["climbed"]  # type: ignore[assignment]  # a list in the reply
            assert [step["rung"] for step in steps] == list(CLIMBED), reply
            charged.append([step.get("charged_s", 0.0) for step in steps])
        duplicate_ms = [milliseconds(lambda: submit(1)) for _ in range(DUPLICATES)]
    return new_s, duplicate_ms, charged


def demo_s(folder: Path) -> float:
    """The demo, from its command to its end."""
    began_s = time.perf_counter()
    command = [sys.executable, "-m", "kernelgate.server", "demo", "--data", str(folder), "--device", "cpu"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began_s


def main() -> None:
    """Measure and write."""
    before_ms = plain_python_loop_ms()
    with tempfile.TemporaryDirectory() as scratch:
        new_s, duplicate_ms, charged = climb_s(Path(scratch, "climb"))
        whole_s = demo_s(Path(scratch, "demo"))
    figures: dict[str, int | float] = {
        "source_to_quick_s_median": statistics.median(new_s),
        "source_to_quick_s_max": max(new_s),
        "duplicate_ms_median": statistics.median(duplicate_ms),
        "check_charged_s_median": statistics.median(row[1] for row in charged),
        "quick_charged_s_median": statistics.median(row[2] for row in charged),
        "demo_s": whole_s,
    }
    raw = {"source_to_quick_s": new_s, "duplicate_ms": duplicate_ms, "charged_s": charged}
    rounded = {name: round(value, 5) for name, value in figures.items()}
    write_measurement("cpu_candidate_cost", *with_pace(rounded, raw, before_ms))


if __name__ == "__main__":
    main()
