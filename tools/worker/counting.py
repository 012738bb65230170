"""Reads the counters of a whole GPU (CUPTI's PM sampling) in a process of its own: `python -P -c` with this text.

A process of its own, because libcupti must be the version that cupti-python was made for, which torch has already
loaded in another where both are installed; and because it may crash: on an H200 host (cupti-python 13.4) a second
configuration of one collector ended the process. It sees what every process runs on the device, opens a context, runs
nothing. Standard library and cupti-python only: children cannot read this package.

One JSON object a line. It says `{"ready": …}` or `{"problem": …}` once; then the words `arm`, `begin` and `end` are
answered in turn, again and again: each window has a collector of its own.
"""

import ctypes
import glob
import importlib
import importlib.util
import json
import os
import sys
from typing import Any

SHARE = ".avg.pct_of_peak_sustained_elapsed"
WANTED = (
    ("active", "sm__cycles_active", SHARE),
    ("busiest_cycles", "sm__cycles_active", ".max"),
    ("mean_cycles", "sm__cycles_active", ".avg"),
    ("dram_read", "dramc__read_throughput", SHARE),
    ("dram_write", "dramc__write_throughput", SHARE),
    ("l2", "lts__throughput", SHARE),
    ("issue", "sm__inst_executed_realtime", SHARE),
    ("tensor", "sm__pipe_tensor_cycles_active_realtime", SHARE),
    ("l1_sectors", "l1tex__t_sectors", ".sum"),
    ("shared_wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared", ".sum"),
    ("fma", "sm__inst_executed_pipe_fma_realtime", SHARE),
    ("alu", "sm__inst_executed_pipe_alu_realtime", SHARE),
    ("blocks", "gr__ctas_launched_realtime", ".sum"),
    ("fp64", "sm__pipe_fp64_cycles_active_realtime", SHARE),
    ("l1_misses", "l1tex__t_sectors_lookup_miss", ".sum"),
    ("l1", "l1tex__throughput", SHARE),
    ("l2_hits", "lts__average_t_sector_hit_rate_realtime", ".pct"),
    ("xu", "sm__inst_executed_pipe_xu_realtime", SHARE),
)
"""Our name, CUPTI's, what is computed of it; the ones that most findings need first. Not how many warps are resident:
`tpc__warps_active_realtime` read 3 of 64 on an H200 where Nsight Compute's own replays read 59."""
SET = "TriageCompute"
"""NVIDIA's own choice of metrics that go together; its members are counted where the plain ones need several passes."""
BUFFER_BYTES = 64 << 20


def say(message: dict[str, Any]) -> None:
    """One line to the referee."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def imported(folder: str) -> tuple[Any, Any, Any]:
    """Cupti's modules, with the library that lies beside them; raises ImportError with a sentence."""
    if importlib.util.find_spec("cupti") is None and folder:
        sys.path.insert(0, folder)
    spec = importlib.util.find_spec("cupti")
    if spec is None or spec.origin is None:
        raise ImportError("cupti-python is not installed")
    beside = os.path.dirname(os.path.dirname(spec.origin))
    for library in sorted(glob.glob(os.path.join(beside, "nvidia", "cu*", "lib", "libcupti.so.*"))):
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    try:
        names = ("cupti", "pm_sampling", "profiler_host")
        cupti, sampling, host = (importlib.import_module(f"cupti.{name}") for name in names)
    except ImportError as error:
        raise ImportError(f"this cupti-python cannot sample, 13.3 or later can: {error}") from None
    return cupti, sampling, host


def open_context() -> None:
    """The device's primary context: the one GPU that this process may see."""
    driver = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    for status in (
        driver.cuInit(0), driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), driver.cuCtxSetCurrent(context)
    ):  # fmt: skip
        if status:
            raise RuntimeError(f"CUDA would not start: error {status}")


def chip_of(cupti: Any) -> str:
    """Name of the device's chip."""
    parameters = cupti.DeviceGetChipNameParams()
    parameters.struct_size = cupti.DEVICE_GET_CHIP_NAME_PARAMS_STRUCT_SIZE
    parameters.device_index = 0
    cupti.device_get_chip_name(parameters.ptr)
    return str(parameters.p_chip_name)


def passes_of(host: Any, chip: str, metrics: list[str]) -> int:
    """How many passes metrics need together; 0 if this chip has not all of them. A refused one spoils its evaluator."""
    evaluator = host.ProfilerHost(chip, host.ProfilerType.PM_SAMPLING)
    evaluator.initialize()
    try:
        return int(host.get_num_of_passes(evaluator.create_config_image(metrics)))
    except Exception:  # noqa: BLE001  each version has its own for a metric that it does not know
        return 0
    finally:
        evaluator.deinitialize()


def fitting(host: Any, chip: str) -> dict[str, str]:
    """What is counted in one pass: our name → CUPTI's. What does not fit any more is left out."""
    members: dict[str, str] = {}
    if SET in host.get_single_pass_sets(chip):
        members = {name.rpartition(".")[2]: name for name in host.get_metrics_in_single_pass_set(chip, SET)}
    chosen: dict[str, str] = {}
    for name, metric, rollup in WANTED:
        candidates = [members[metric] + rollup] if metric in members else []
        for full in (*candidates, metric + rollup):
            if passes_of(host, chip, [*chosen.values(), full]) == 1:
                chosen[name] = full
                break
    if "active" not in chosen:
        raise RuntimeError(f"no counters are known of {chip}")
    return chosen


def begin(sampling: Any, metrics: list[str], interval_ns: int) -> Any:
    """A collector that samples from now on."""
    collector = sampling.Collector(0)
    collector.enable()
    collector.configure(metrics=metrics, hardware_buffer_size=BUFFER_BYTES, sampling_interval=interval_ns)
    return collector


def read(collector: Any, names: list[str], interval_ns: int) -> dict[str, Any]:
    """Means and sums over the samples from the first to the last in which a multiprocessor had work."""
    rows = [sample.metric_values for sample in list(collector.decode())[1:]]  # the first has no beginning
    active = [index for index, row in enumerate(rows) if row[names.index("active")] > 0]
    if not active:
        return {"samples": len(rows), "window_us": 0.0, "means": {}, "sums": {}}
    within = rows[active[0] : active[-1] + 1]
    sums = {name: sum(row[place] for row in within) for place, name in enumerate(names)}
    means = {name: total / len(within) for name, total in sums.items()}
    return {"samples": len(rows), "window_us": len(within) * interval_ns / 1e3, "means": means, "sums": sums}


def main(interval_ns: int, folder: str) -> None:
    """Get ready, then sample between the words `begin` and `end`, as often as it is armed."""
    try:
        cupti, sampling, host = imported(folder)
        open_context()
        trial = sampling.Collector(0)
        trial.enable()
        chip = chip_of(cupti)
        trial.disable()
        chosen = fitting(host, chip)
        say({"ready": chip, "counted": list(chosen)})
        collector: Any = None
        for line in sys.stdin:
            word = line.strip()
            if word == "arm":
                collector = begin(sampling, list(chosen.values()), interval_ns)
                say({"armed": True})
            elif word == "begin":
                collector.start()
                say({"begun": True})
            elif word == "end":
                collector.stop()
                values = read(collector, list(chosen), interval_ns)
                collector.disable()
                say(values)
    except PermissionError:
        say({"problem": "the driver lets only administrators read counters", "kind": "permission"})
    except ImportError as error:
        say({"problem": str(error), "kind": "missing"})
    except Exception as error:  # noqa: BLE001  whatever it is, a profile does without
        say({"problem": f"{type(error).__name__}: {error}"[:300], "kind": "failed"})


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
    os._exit(0)  # the library's own end crashed on one host; everything was said
