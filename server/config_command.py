"""`kernelgate config`: print or write the entry that connects a client."""

import os
from collections.abc import Sequence

import click

from kernelgate.server import clients
from kernelgate.server.preflight import require
from kernelgate.server.settings import Settings
from kernelgate.server.trouble import guarded


def run_config(settings: Settings, client: str, arguments: Sequence[str], *, write: bool) -> int:
    """Print the entry, or merge it into the client's file; what `serve` would refuse is not written there."""

    def configuring() -> int:
        command = clients.serve_command(arguments)
        found = clients.client_config(client, command, clients.carried_environment(os.environ))
        require(settings)
        click.echo(clients.write_config(found) if write else clients.shown(found))
        return 0

    return guarded(configuring)
