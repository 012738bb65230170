"""Asks Datasette for every page of a ledger's site. Run as a script: LEDGER METADATA; prints page → status, length."""

import asyncio
import json
import sys
from pathlib import Path

from datasette.app import Datasette


async def statuses(ledger: Path, metadata: dict[str, object]) -> dict[str, list[int]]:
    site = Datasette([], immutables=[str(ledger)], metadata=metadata)
    (database,) = metadata["databases"].values()
    pages = [
        "/",
        f"/{ledger.stem}",
        *(f"/{ledger.stem}/{name}" for part in ("tables", "queries") for name in database[part]),
    ]
    answers = {page: await site.client.get(page) for page in pages}
    return {page: [answer.status_code, len(answer.text)] for page, answer in answers.items()}


if __name__ == "__main__":
    file = Path(sys.argv[1])
    sys.stdout.write(json.dumps(asyncio.run(statuses(file, json.loads(Path(sys.argv[2]).read_text())))))
