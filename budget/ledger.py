"""The SQLite book: runs, candidates, holds and settlements, results, jobs, replays; one file, many processes.

Each spend is one immediate transaction that reads the purse, asks the rule, and writes a `hold` or `refuse` event;
`settle` or `release` ends the hold. Events are append-only and hash-chained. Use one `Ledger` per thread.
"""

from kernelgate.budget.jobs import Jobs
from kernelgate.budget.replays import Replays


class Ledger(Replays, Jobs):
    """One open book; `Ledger.open(path)`. Works as a context manager that closes the connection."""
