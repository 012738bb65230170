"""`kernelgate tokens add|list|remove`."""

import sys

from rich.console import Console

from kernelgate.server.preflight import make_data_folder
from kernelgate.server.settings import Settings
from kernelgate.server.tables import Listing
from kernelgate.server.tokens import Tokens
from kernelgate.server.trouble import guarded


def add(settings: Settings, account: str, url: str, days: int | None) -> int:
    """The secret alone on stdout, for a script; all else on stderr."""

    def adding() -> int:
        make_data_folder(settings)
        token, secret = Tokens(settings.data_dir).add(account, url, days)
        sys.stdout.write(f"{secret}\n")
        until = f" until {token.expires_utc}" if token.expires_utc else ""
        sys.stderr.write(
            f"Token {token.token_id} of account {token.account} for {token.url}{until}. It is shown this once: clients "
            "send it as `Authorization: Bearer TOKEN`.\n"
        )
        return 0

    return guarded(adding)


def show(settings: Settings) -> int:
    """A table, a token a line."""

    def showing() -> int:
        known = Tokens(settings.data_dir).all()
        rows = tuple((t.token_id, t.account, t.url, t.created_utc, t.expires_utc or "never") for t in known)
        table = Listing("Tokens", ("token", "account", "for", "made", "ends"), rows)
        console = Console(soft_wrap=True, highlight=False)
        console.print(table if known else "There are no tokens: `kernelgate tokens add ACCOUNT` makes one.")
        return 0

    return guarded(showing)


def remove(settings: Settings, token_id: str) -> int:
    """Forget it."""

    def removing() -> int:
        token = Tokens(settings.data_dir).remove(token_id)
        sys.stderr.write(f"Token {token.token_id} of account {token.account} opens nothing any more.\n")
        return 0

    return guarded(removing)
