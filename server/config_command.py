"""`kernelgate config`: print or write the entry that connects a client."""

import os
from collections.abc import Sequence

import click

from kernelgate.server import clients
from kernelgate.server.clients_over_http import TOKEN_VARIABLE
from kernelgate.server.preflight import require
from kernelgate.server.settings import Settings
from kernelgate.server.tokens import address, is_of_this_host
from kernelgate.server.trouble import guarded


def run_config(settings: Settings, client: str, arguments: Sequence[str], *, write: bool, url: str = "") -> int:
    """Print the entry, or merge it into the client's file; what `serve` would refuse is not written there.

    With `url` it is the entry of a server that serves over HTTP there, perhaps on another host.
    """

    def configuring() -> int:
        if url:
            at = address(url)
            with_token = bool(os.environ.get(TOKEN_VARIABLE)) or not is_of_this_host(at)
            found = clients.client_config_over_http(client, at, with_token=with_token)
        else:
            command = clients.serve_command(arguments)
            found = clients.client_config(client, command, clients.carried_environment(os.environ))
            require(settings)
        click.echo(clients.write_config(found) if write else clients.shown(found))
        return 0

    return guarded(configuring)
