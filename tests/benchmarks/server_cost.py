"""What the server costs beside the work: its start, its memory, a look-up, a spend, an audit. Writes server_cost.json.

Start and bare import of the SDK alternate in one run, since both depend on how busy the host is.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bench_audit
import bench_ledger
from measurement import plain_python_loop_ms, with_pace, write_measurement
from pydantic import JsonValue
from stdio_server import milliseconds, stdio_server

STARTS = 9
LOOKUPS = 300


def start_s(folder: Path) -> float:
    """From the command to the answered `tools/list`, handshake included."""
    began_s = time.perf_counter()
    with stdio_server(folder) as server:
        server.greet()
        assert len(server.ask("tools/list")["tools"]) == 12
        return time.perf_counter() - began_s


def import_s() -> float:
    """An interpreter that imports the SDK's low-level server and ends."""
    began_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import mcp.server.lowlevel"], check=True)
    return time.perf_counter() - began_s


def main() -> None:
    """Measure and write."""
    others = os.getloadavg()[0]
    before_ms = plain_python_loop_ms()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        start_s(folder)  # makes the ledger and the byte code
        pairs = [(import_s(), start_s(folder)) for _ in range(STARTS)]
        with stdio_server(folder) as server:
            server.greet()
            run_id = server.call("start_run", task="softmax")["run"]["run_id"]
            for _ in range(20):
                server.call("get_budget", run_id=run_id)
            budget_ms = [milliseconds(lambda: server.call("get_budget", run_id=run_id)) for _ in range(LOOKUPS)]
            noop_ms = [milliseconds(lambda: server.ask("ping")) for _ in range(LOOKUPS)]
            resident_mb = server.resident_mb()
    spends, readings = bench_ledger.figures()
    audits = bench_audit.figures()
    figures: dict[str, int | float] = {
        "other_processes_running": others,
        "mcp_import_s_median": statistics.median(pair[0] for pair in pairs),
        "tools_list_s_median": statistics.median(pair[1] for pair in pairs),
        "tools_list_above_import_s_median": statistics.median(pair[1] - pair[0] for pair in pairs),
        "server_rss_mb": resident_mb,
        "get_budget_ms_median": statistics.median(budget_ms),
        "get_budget_ms_p99": bench_ledger.percentile(budget_ms, 0.99),
        "noop_stdio_ms_median": statistics.median(noop_ms),
        **spends,
        **audits,
    }
    raw: dict[str, JsonValue] = {
        "import_and_start_s": [list(pair) for pair in pairs],
        "get_budget_ms": budget_ms,
        "noop_ms": noop_ms,
        **readings,
    }
    rounded = {name: round(value, 5) for name, value in figures.items()}
    write_measurement("server_cost", *with_pace(rounded, raw, before_ms))


if __name__ == "__main__":
    main()
