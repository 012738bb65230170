"""The best so far against device seconds, one SVG a stream. Drawn by matplotlib, an extra of its own."""

import importlib
import importlib.util
from pathlib import Path
from typing import Any, Final

from kernelgate.budget.ladder.model import FLAT, Played
from kernelgate.server.bench.report import LadderReport, StreamReport, named
from kernelgate.server.trouble import Trouble

INCHES: Final = (8.0, 4.5)
SALT: Final = "kernelgate"
"""The same report gives the same file."""


def why_not() -> str:
    """Why nothing can be drawn, with what to do; empty where it can."""
    if importlib.util.find_spec("matplotlib") is not None:
        return ""
    return (
        "No plots without matplotlib: pip install 'kernelgate[plots]' where kernelgate is installed, then draw them "
        "from the report with `kernelgate bench plot REPORT -o DIR`."
    )


def make_folder(folder: Path) -> None:
    """Make a folder if it is not there; raises `Trouble` where it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Trouble(f"the folder {folder} cannot be made: {error.strerror}; name another") from None


def draw(report: LadderReport, folder: Path) -> list[Path]:
    """One file `<stream>.svg` for each stream that has anything to show; raises `Trouble`."""
    if lacking := why_not():
        raise Trouble(lacking)
    for each in report.streams:
        # A report may come from elsewhere: it must not choose where files are written.
        if "\0" in each.stream or Path(each.stream).name != each.stream:
            raise Trouble(f"the report has a stream {each.stream!r}, which is no name for the file of a plot")
    make_folder(folder)
    return [_draw(each, folder / f"{each.stream}.svg") for each in report.streams if any(p.curve for p in each.played)]


def _draw(report: StreamReport, path: Path) -> Path:
    # Without pyplot: no state of the process, no window. By name: it is an extra, and half of its types are unknown.
    matplotlib: Any = importlib.import_module("matplotlib")
    figures: Any = importlib.import_module("matplotlib.figure")
    with matplotlib.rc_context({"svg.hashsalt": SALT, "svg.fonttype": "none"}):
        figure = figures.Figure(figsize=INCHES, layout="constrained")
        axes = figure.add_subplot()
        for played in report.played:
            steps = _steps(played)
            if steps:
                label = "flat" if played.rule == FLAT else named(played.rule, live=played.live)
                style = "-" if played.live else "--"
                axes.step(*zip(*steps, strict=True), where="post", label=label, linestyle=style)
        axes.axhline(1.0, color="grey", linewidth=0.8, linestyle=":")
        axes.set_xlabel("GPU seconds charged" if report.unit == "gpu_s" else "CPU seconds charged")
        axes.set_ylabel("best so far (baseline / candidate)")
        title = f"{report.stream} on {report.device}{' (partial)' if report.why_partial else ''}"
        axes.set_title(title, parse_math=False)  # a file may have dollars in its name
        axes.legend(loc="lower right")
        try:
            figure.savefig(path, format="svg", metadata={"Date": None})
        except OSError as error:
            raise Trouble(f"{path} cannot be written: {error.strerror}") from None
    return path


def _steps(played: Played) -> list[tuple[float, float]]:
    """Device seconds and the best so far, from the first precise timing to the end of what was spent."""
    points = [(point.device_s, point.ratio) for point in played.curve]
    return [*points, (sum(played.device_s.values()), points[-1][1])] if points else []
