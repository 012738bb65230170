"""Writes the streams of candidates that a ladder is compared on: `python tests/benchmarks/make_streams.py [TASK…]`."""

import importlib
import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent / "streams_of"))

from stream_core import Idea, as_jsonl

FOLDER: Final = Path(__file__).parent / "streams"
TASKS: Final = ("matmul", "softmax", "rmsnorm", "layernorm_residual", "linear_gelu", "cross_entropy")


def ideas_of(task: str) -> list[Idea]:
    """The candidates of a task in the order of its stream, with what each is meant to be."""
    found: list[Idea] = importlib.import_module(f"of_{task}").ideas()
    return found


def main(*tasks: str) -> None:
    """Write the streams of these tasks, or all."""
    for task in tasks or TASKS:
        (FOLDER / f"{task}.jsonl").write_text(as_jsonl(ideas_of(task)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
