"""A small task, an honest candidate for it, and how the outcome of a call is read."""

from typing import Any

SOFTMAX = """
import torch
ROWS, COLS = 32, 64
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)
def get_inputs():
    return [torch.rand(ROWS, COLS)]
def get_init_inputs():
    return []
"""
HONEST = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)
"""


def task(source: str = SOFTMAX, **more: Any) -> dict[str, Any]:
    return {
        "name": "t", "title": "t", "group": "g", "source": source,
        "workloads": [{"name": "small"}], "tolerances": {"float32": {"rtol": 1e-4, "atol": 1e-6}}, **more,
    }  # fmt: skip


def forward(body: str, before: str = "", init: str = "") -> str:
    """A candidate whose `forward(self, x)` has this body."""
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    more = f"    def __init__(self):\n        super().__init__()\n        {init}\n" if init else ""
    return f"import torch\n{before}\nclass ModelNew(torch.nn.Module):\n{more}    def forward(self, x):\n{lines}\n"


def first_problem(outcome: dict[str, Any]) -> str:
    """The first wrong comparison or fault of a call."""
    for result in outcome["results"]:
        if result is None:
            continue
        if result["type"] == "Fault":
            return str(result["kind"])
        comparison = result.get("comparison") if result["type"] == "Block" else result
        if comparison is not None and comparison.get("problem", "none") != "none":
            return str(comparison["problem"])
    return "none"
