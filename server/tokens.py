"""Who may use a server over HTTP: tokens, each of an account, for one address, perhaps until a day.

The file holds their hashes only. It is read again whenever it has changed, so that a token that is removed is refused
from the next request on.
"""

import contextlib
import fcntl
import hashlib
import hmac
import ipaddress
import os
import re
import secrets
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from kernelgate.budget.model import ALL_ACCOUNTS, HOUSE
from kernelgate.server.whole_files import replacing
from kernelgate.tasks.model import Frozen

FILE_NAME: Final = "tokens.json"
DEFAULT_URL: Final = "http://127.0.0.1:8642/mcp"
"""Where `serve --http` listens unless told otherwise."""
ACCOUNT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
MOST_DAYS: Final = 3650


class TokenError(Exception):
    """What is wrong with a token, an account or the file: one sentence with what to do."""


class BrokenTokens(TokenError):
    """The file cannot be read: the sentence names it, and is for who runs the server alone."""


class Token(Frozen):
    """One token, without its secret."""

    token_id: str
    """Made of the hash, so that the name of one that was removed is never another's."""
    account: str
    sha256: str
    """Of the secret, which has 256 random bits: no salt is needed."""
    url: str
    """The address of the server that it is for."""
    created_utc: str
    expires_utc: str = ""
    """Empty: never."""


_TOKENS: Final = TypeAdapter(tuple[Token, ...])


def address(url: str) -> str:
    """An address in the form in which two are compared; raises `TokenError` for what is none."""
    try:
        parts = urlsplit(url.strip())
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        host, port, parts = "", None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host or parts.username is not None:
        raise TokenError(f"{url!r} is no address of a server; it looks like {DEFAULT_URL}")
    named = f"[{host}]" if ":" in host else host
    plain = port is None or port == {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{named}{'' if plain else f':{port}'}{parts.path.rstrip('/')}"


def is_of_this_host(url: str) -> bool:
    """Whether an address is this host's own, where a server asks for no token unless told."""
    host = urlsplit(url).hostname or ""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


class Tokens:
    """The tokens of one data folder."""

    def __init__(self, data_dir: Path) -> None:
        """Nothing is read yet; no file is the same as no tokens."""
        self._path = data_dir / FILE_NAME
        self._seen: tuple[int, int, int] | None = None
        self._known: tuple[Token, ...] = ()

    def all(self) -> tuple[Token, ...]:
        """As they are now; raises `BrokenTokens` where the file cannot be read."""
        try:
            now = self._path.stat()
            seen = (now.st_ino, now.st_mtime_ns, now.st_size)
            if seen != self._seen:
                self._known = _TOKENS.validate_json(self._path.read_bytes())
                self._seen = seen
        except FileNotFoundError:
            self._seen, self._known = None, ()
        except (OSError, ValidationError) as error:
            why = "it is not as kernelgate writes it" if isinstance(error, ValidationError) else error.strerror
            raise BrokenTokens(
                f"{self._path} cannot be read ({why}): mend it, or remove it and add tokens anew"
            ) from None
        return self._known

    def add(self, account: str, url: str, days: int | None = None) -> tuple[Token, str]:
        """A new token and its secret, which nobody can read again."""
        if not ACCOUNT.fullmatch(account) or account in (HOUSE, ALL_ACCOUNTS):
            raise TokenError(f"{account!r} is no name of an account: letters, digits and ._- (up to 64), not {HOUSE!r}")
        secret = f"kg_{secrets.token_urlsafe(32)}"
        now = datetime.now(UTC)
        with self._writing():
            known = self.all()
            digest = _hash(secret)
            token = Token(
                token_id=f"t{digest[:8]}", account=account, sha256=digest, url=address(url), created_utc=_text(now),
                expires_utc="" if days is None else _text(now + timedelta(days=days)),
            )  # fmt: skip
            self._write((*known, token))
        return token, secret

    def remove(self, token_id: str) -> Token:
        """Forget a token; raises `TokenError` if there is none."""
        with self._writing():
            known = self.all()
            found = next((token for token in known if token.token_id == token_id), None)
            if found is None:
                raise TokenError(f"there is no token {token_id!r}; `kernelgate tokens list` shows them")
            self._write(tuple(token for token in known if token is not found))
        return found

    def account_of(self, secret: str, url: str, now_utc: str = "") -> str:
        """The account of a secret that is used at `url`; raises `TokenError` with the reason why it opens nothing."""
        digest = _hash(secret)
        found: Token | None = None
        for token in self.all():  # all of them, so that the time tells nothing of which one was near
            found = token if hmac.compare_digest(token.sha256, digest) else found
        if found is None:
            raise TokenError("this token is not known here: ask for one that `kernelgate tokens add` has made")
        if found.expires_utc and found.expires_utc <= (now_utc or _text(datetime.now(UTC))):
            raise TokenError(f"this token ended at {found.expires_utc}: ask for a new one")
        if found.url != address(url):
            raise TokenError(f"this token is for {found.url}, and this server is {url}: ask for one for this server")
        return found.account

    @contextlib.contextmanager
    def _writing(self) -> Generator[None]:
        """Two commands at once write one after the other."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise TokenError(f"{self._path} cannot be written ({error.strerror}): name another folder") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _write(self, tokens: tuple[Token, ...]) -> None:
        try:
            with replacing(self._path) as stream:
                stream.write(f"{_TOKENS.dump_json(tokens, indent=1).decode()}\n")
        except OSError as error:
            raise TokenError(f"{self._path} cannot be written ({error.strerror}): name another folder") from None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
