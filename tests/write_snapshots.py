"""Writes the snapshot of each tool's published form: `make snapshots`. Review the diff like code."""

import json
from pathlib import Path

from kernelgate.server.app import face

FOLDER = Path(__file__).parent / "snapshots"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for tool in face().listing:
        form = tool.model_dump(mode="json", by_alias=True, exclude_none=True)
        text = json.dumps(form, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
        (FOLDER / f"{tool.name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
