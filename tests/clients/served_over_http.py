"""`kernelgate serve --http 127.0.0.1:0` with the conformance suite's fixtures: served_over_http.py DIR."""

import sys
from pathlib import Path
from typing import Any

from suite_fixtures import with_fixtures

from kernelgate.server import serve_http
from kernelgate.server.settings import Settings

own_build = serve_http.build


def build(*arguments: Any) -> Any:
    """The server that would be built, with the fixtures."""
    return with_fixtures(own_build(*arguments))


if __name__ == "__main__":
    serve_http.build = build
    sys.exit(
        serve_http.run_http(Settings(data_dir=Path(sys.argv[1]), device="cpu"), "127.0.0.1:0", "", needs_token=False)
    )
