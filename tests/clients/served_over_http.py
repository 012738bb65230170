"""The server with the suite's fixtures, over streamable HTTP on loopback: served_over_http.py PORT DIR [--plain].

`--plain` leaves the fixtures out.
"""

import sys
from pathlib import Path

import uvicorn
from suite_fixtures import with_fixtures

from kernelgate.server.app import build
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings


def main() -> None:
    port, folder, *flags = sys.argv[1:]
    settings = Settings(data_dir=Path(folder), device="cpu")
    server = build(lambda: open_services(settings))
    app = (server if "--plain" in flags else with_fixtures(server)).streamable_http_app()
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
