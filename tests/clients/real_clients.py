"""Real MCP clients against kernelgate, without an account: `make clients ARGS="[--only NAME …] [--write]"`.

Installs them from npm into a folder that goes away (`--box DIR` keeps one: about 1.1 GB, a minute), so it needs an npm
registry, which is why `make test` leaves it out. `--write` renews docs/clients.md, of all clients only.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import claude_code
import codex
import conformance
import gemini_cli
import inspector
import over_http
from node_box import ROOT, NodeBox, Seen

PAGE: Final = ROOT / "docs" / "clients.md"
CLIENTS: Final[Mapping[str, Callable[[NodeBox], Iterator[Seen]]]] = {
    "conformance": conformance.look,
    "inspector": inspector.look,
    "claude-code": claude_code.look,
    "codex": codex.look,
    "gemini-cli": gemini_cli.look,
    "over-http": over_http.look,
}
HEAD: Final = """# What real clients do with kernelgate

Seen on {date} by `make clients ARGS=--write` on Linux without a GPU, with the versions that stand in
`tests/clients/node_box.py`; each client was installed from npm and ran in a home of its own, without an account.

| client | version | tried | seen |
|---|---|---|---|
{rows}

The conformance suite speaks HTTP. `real` is `kernelgate serve --http`, judged by the checks that ask for no tool,
resource or prompt by name; `fixtures` is the same server with those that the suite asks for
(`tests/clients/suite_fixtures.py`), judged by all. What is expected to fail, and why:
[expected_failures.toml](../tests/clients/expected_failures.toml).

A canned model is one on loopback that calls the tools it was told to (`tests/clients/canned_model.py`): what the client
does with its calls is real, what a model would do with the replies is not seen.

**Not seen here**, since it takes a model, a person or a desktop: whether an agent finds its way; how clients show
progress; Cursor, VS Code, Copilot CLI and Claude Desktop, whose entries in `kernelgate config` follow their
documentation.
"""


def page(seen: Sequence[Seen], date: str) -> str:
    """The record, as Markdown."""
    rows = [
        f"| {one.client} | {one.version} | {one.step} | {'' if one.ok else 'FAILED: '}{_cell(one.words)} |"
        for one in seen
    ]
    return HEAD.format(date=date, rows="\n".join(rows))


def _cell(words: str) -> str:
    return " ".join(words.replace("|", "\\|").split())


def look(box: NodeBox, names: Sequence[str]) -> list[Seen]:
    """All that is seen of these clients, told as it comes; a client that cannot even be tried is a failure too."""
    seen: list[Seen] = []
    for name in names:
        for one in CLIENTS[name](box):
            sys.stdout.write(f"{'+' if one.ok else '-'} {one.client} {one.version}: {one.step}: {one.words}\n")
            sys.stdout.flush()
            seen.append(one)
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=sorted(CLIENTS), default=list(CLIENTS))
    parser.add_argument("--box", type=Path, help="keep the packages in this folder")
    parser.add_argument("--write", action="store_true", help=f"renew {PAGE.relative_to(ROOT)}")
    given = parser.parse_args()
    if given.write and set(given.only) != set(CLIENTS):
        parser.error("--write renews the whole page: leave --only out")
    with tempfile.TemporaryDirectory(prefix="kernelgate-clients-", ignore_cleanup_errors=True) as folder:
        seen = look(NodeBox(given.box.absolute() if given.box else Path(folder)), given.only)
    if given.write:
        PAGE.write_text(page(seen, datetime.now(UTC).date().isoformat()), encoding="utf-8")
    return 0 if seen and all(one.ok for one in seen) else 1


if __name__ == "__main__":
    sys.exit(main())
