"""What tests see of the live server: calls with replies that are checked, and a candidate around a forward."""

import json
from pathlib import Path
from typing import Any

from mcp import Client

from kernelgate.budget.ledger import Ledger


class Reply(dict[str, Any]):
    """The structure of a reply, with the text beside it."""

    def __init__(self, structure: dict[str, Any], text: str, *, is_error: bool) -> None:
        super().__init__(structure)
        self.text = text
        self.is_error = is_error


class Live:
    """Calls tools on the live server."""

    def __init__(self, portal: Any, client: Client, data_dir: Path) -> None:
        self._portal = portal
        self._client = client
        self.data_dir = data_dir

    def call(self, tool: str, **arguments: Any) -> Reply:
        result = self._portal.call(self._client.call_tool, tool, arguments)
        text = "".join(part.text for part in result.content)
        if not result.is_error:
            assert json.loads(text) == result.structured_content, "text and structure must say the same"
        return Reply(result.structured_content or {}, text, is_error=result.is_error)

    def run(self, task: str = "softmax", **budget: Any) -> str:
        return str(self.call("start_run", task=task, **budget)["run"]["run_id"])

    def submit(self, run_id: str, body: str, **arguments: Any) -> Reply:
        """Compile a candidate whose forward has that body."""
        return self.call("compile", run_id=run_id, source=forward(body), **arguments)

    def ledger(self) -> Ledger:
        return Ledger.open(self.data_dir / "ledger.db")


def forward(body: str) -> str:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return f"import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n{lines}"
