"""Writes the snapshot of what clients see listed: `make snapshots`. Review the diff like code."""

import json
from pathlib import Path
from typing import Any

from kernelgate.server.app import face
from kernelgate.server.prompts import PROMPTS
from kernelgate.server.resources import FIXED, TEMPLATES

FOLDER = Path(__file__).parent / "snapshots"


def forms() -> dict[str, object]:
    """Name of the snapshot → what it holds: each tool, and the other lists whole."""
    lists = {
        "resources": FIXED,
        "resource_templates": TEMPLATES,
        "prompts": [prompt.listed for prompt in PROMPTS],
    }
    return {tool.name: _plain(tool) for tool in face().listing} | {
        name: [_plain(item) for item in items] for name, items in lists.items()
    }


def _plain(item: Any) -> object:
    return item.model_dump(mode="json", by_alias=True, exclude_none=True)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, form in forms().items():
        text = json.dumps(form, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
        (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
