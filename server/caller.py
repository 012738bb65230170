"""Who calls: the account that a request acts for, and the name that its client gave itself."""

from collections.abc import Mapping
from typing import Any, cast

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import ServerRequestContext

from kernelgate.budget.model import LOCAL
from kernelgate.server.services import Services

Context = ServerRequestContext[Services]


def account_of(ctx: Context) -> str:
    """Whose runs a request sees and whose purse it spends: over HTTP its token's account, else the local one."""
    token = get_access_token()
    return LOCAL if token is None else token.client_id


def client_of(ctx: Context) -> tuple[str, str]:
    """Name and version that the client gave itself: for the ledger, never for authorisation."""
    meta: Mapping[str, Any] = ctx.meta or {}
    info: Any = meta.get("io.modelcontextprotocol/clientInfo")
    if isinstance(info, dict):
        info = cast("dict[str, Any]", info)
        return str(info.get("name", ""))[:100], str(info.get("version", ""))[:100]
    params = ctx.session.client_params
    if params is None:
        return "", ""
    return params.client_info.name[:100], params.client_info.version[:100]
