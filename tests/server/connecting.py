"""A real client over a book that the test itself writes: in memory and over stdio, in both eras of the protocol."""

import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from mcp import Client, MCPDeprecationWarning, StdioServerParameters

sys.path.insert(0, str(Path(__file__).parents[1] / "budget"))

from book_scenario import TASK, Scenario, result_input, run_request

from kernelgate.budget.model import Amount, Rung
from kernelgate.budget.records import CandidateRecord, RunRecord
from kernelgate.server.app import build
from kernelgate.server.owner import this_process
from kernelgate.server.services import open_services
from kernelgate.server.settings import Settings
from kernelgate.tasks.model import Candidate

BOTH_ERAS: Final = pytest.mark.parametrize("mode", ["auto", "legacy"])
BOTH_WAYS: Final = pytest.mark.parametrize("way", ["memory", "stdio"])
OnMessage = Callable[[Any], Awaitable[None]]


@asynccontextmanager
async def connected(
    way: str, folder: Path, mode: str, on_message: OnMessage | None = None, plant: str = ""
) -> AsyncIterator[Client]:
    """A client of a server over the book in a folder; `plant` is run in the process of a server over stdio first."""
    if way == "memory":
        server: Any = build(lambda: open_services(Settings(data_dir=folder, device="cpu")))
    else:
        program = f"{plant}\nfrom kernelgate.server.cli import main\nmain()"
        args = ["-P", "-c", program, "serve", "--data", str(folder), "--device", "cpu"]
        server = StdioServerParameters(command=sys.executable, args=args)
    async with Client(server, mode=mode, message_handler=on_message) as client:
        yield client


def book_of(folder: Path) -> Scenario:
    """Run r1 with candidate c1, timed precisely. Its jobs are this process's, so that a server's sweep leaves them."""
    book = Scenario(folder / "ledger.db")
    book.job_record = book.job(this_process())
    book.climb(Rung.precise, "# mine\n")
    return book


def write_result(book: Scenario, hold_seq: int, rung: Rung) -> None:
    """One row: a held call ends with a result."""
    book.ledger.settle(hold_seq, Amount(calls=1, cpu_s=0.5, work_s=0.5), result_input(rung))


def new_run(book: Scenario, account: str = "local") -> RunRecord:
    """One more run of the book's task."""
    return book.ledger.start_run(TASK, run_request(account=account))


def of_another_account(book: Scenario) -> CandidateRecord:
    """A candidate in a run of somebody else."""
    book.ledger.record_account("other")
    run = new_run(book, "other")
    return book.ledger.register_candidate(run.run_id, Candidate(files={"candidate.py": "# theirs"}), account="other")[0]


async def subscribe(client: Client, uri: str) -> None:
    """As clients of the handshake era do, of which the SDK says that it is over."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        await client.subscribe_resource(uri)


async def unsubscribe(client: Client, uri: str) -> None:
    """The other way."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        await client.unsubscribe_resource(uri)


async def read(client: Client, uri: str) -> str:
    """The text of a resource."""
    (contents,) = (await client.read_resource(uri)).contents
    return str(contents.text)  # type: ignore[union-attr]  # ours are all text
