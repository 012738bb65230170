"""Random lives of two servers on one ledger: workers fail, the ledger refuses writes, servers die, clocks jump."""

import shutil
import sqlite3
import tempfile
from contextlib import ExitStack
from pathlib import Path

from anyio.from_thread import start_blocking_portal
from faults import Fault, JumpyClock
from faulty_server import FaultyServer, How, Owners, processes
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from live_server import forward

from kernelgate.budget.audit import audit
from kernelgate.budget.ledger import Ledger
from kernelgate.budget.records import Head

MOST_RUNS = 3
TOPS = ("compile", "check_correctness", "quick_time", "precise_time")
SPENDING = TOPS
REASON = "it may win on long rows"
scripts = st.just(["down"]) | st.lists(
    st.sampled_from(["well", "well", "well", "wrong", "crashed", "our_fault", "capped", "down"]), max_size=5
)
faults = st.one_of(
    st.none(), st.none(),
    st.builds(Fault, st.sampled_from(["dies_before", "dies_after", "full", "failing", "busy"]), st.integers(0, 30)),
)  # fmt: skip
sources = st.integers(0, 30).map(lambda number: forward(f"return x + {number}"))
tops = st.sampled_from([*TOPS, *TOPS[1:], *TOPS[2:]])
jumps = st.sampled_from([-400_000.0, -1.0, 0.0, 0.0, 3600.0, 86_401.0])
who = st.sampled_from([0, 1])


class FaultyGate(RuleBasedStateMachine):
    @initialize()
    def open_servers(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "ledger.db"
        self.stack = ExitStack()
        self.owners = Owners()
        self.stack.enter_context(processes(self.owners))
        self.portals = [self.stack.enter_context(start_blocking_portal("asyncio")) for _ in range(2)]
        self.clock = JumpyClock()
        self.born = 0
        self.leased_s = 0.0
        self.heads: list[str] = []
        self.servers = [self.another(n) for n in range(2)]
        _, said = self.servers[0].call("start_run", task="softmax", device_s=30.0, rule="halving")
        assert said == ""
        self.watch = Ledger.open(self.path)
        self.run = "r1"
        self.ask(0, None, [], "compile", run_id="r1", source=forward("return -x"), up_to="precise_time")

    def held_by(self, server: FaultyServer) -> list[int]:
        """Open holds of the run for jobs of a server."""
        held = self.watch.open_holds(self.run)
        pid_of = "SELECT j.owner_pid FROM events h JOIN jobs j ON j.job_id = h.job_id WHERE h.seq = ?"
        return [seq for seq in held if self.watch.query(pid_of, seq)[0]["owner_pid"] == server.number]

    def another(self, n: int) -> FaultyServer:
        self.born += 1
        return FaultyServer(self.portals[n], self.folder, self.owners, self.born, self.clock)

    def ask(self, n: int, fault: Fault | None, script: list[How], tool: str, **arguments: object) -> None:
        """One call. Without a fault of the ledger it ends its holds and says what it cost, to the digit."""
        server, before_s = self.servers[n], self.watch.purse(self.run).settled.device_s
        owed = self.held_by(server)
        server.meet(fault, *script)
        answer, said = server.call(tool, **arguments)
        server.meet(None)
        assert bool(answer) != bool(said)
        assert "Something failed in the server" not in said, "each error is foreseen"
        if server.dead:
            self.kill(n)
        elif fault is None:
            # What a full disk left open before is written by the next call that spends.
            assert self.held_by(server) == [] or (tool not in SPENDING and owed), "what is over holds nothing"
            if answer and not owed:
                charged_s = self.watch.purse(self.run).settled.device_s - before_s
                assert abs(answer.get("cost", {}).get("charged_s", 0.0) - charged_s) < 1e-6
        if answer:
            self.heads.append(answer["ledger_head"])

    @rule(n=who, fault=faults, script=scripts, source=sources, top=tops, why=st.booleans())
    def submit(self, n: int, fault: Fault | None, script: list[How], source: str, top: str, why: bool) -> None:
        self.send(n, fault, script, source, top, why)

    def send(self, n: int, fault: Fault | None, script: list[How], source: str, top: str, why: bool) -> None:
        more = {"override_reason": REASON} if why else {}
        self.ask(n, fault, script, "compile", run_id=self.run, source=source, up_to=top, **more)

    @rule(data=st.data(), n=who, fault=faults, script=scripts, tool=st.sampled_from(TOPS[1:3]), fresh=st.booleans())
    def measure(
        self, data: st.DataObject, n: int, fault: Fault | None, script: list[How], tool: str, fresh: bool
    ) -> None:
        known = self.watch.query("SELECT candidate_id FROM candidates WHERE run_id = ? ORDER BY number", self.run)
        if known:
            candidate_id = data.draw(st.sampled_from([row["candidate_id"] for row in known]))
            self.ask(n, fault, script, tool, candidate_id=candidate_id, fresh=fresh)

    @rule(n=who, script=scripts, source=sources, top=tops, why=st.booleans(), jump_s=jumps)
    def submit_at_another_time(
        self, n: int, script: list[How], source: str, top: str, why: bool, jump_s: float
    ) -> None:
        """The clock was set; the ledger is well."""
        self.clock.offset_s += jump_s
        self.send(n, None, script, source, top, why)
        self.ask(n, None, [], "list_candidates", run_id=self.run)

    @precondition(lambda self: self.run != f"r{MOST_RUNS}")
    @rule(n=who, fault=faults)
    def next_run(self, n: int, fault: Fault | None) -> None:
        self.ask(n, fault, [], "start_run", task="softmax", device_s=30.0, rule="halving")
        self.run = self.watch.runs(limit=1)[0].run_id

    @rule(n=who, killed=st.booleans())
    def restart(self, n: int, killed: bool) -> None:
        self.kill(n, killed=killed)

    def kill(self, n: int, *, killed: bool = True) -> None:
        self.leased_s += self.servers[n].leased_s
        self.servers[n].end(killed=killed)
        self.servers[n] = self.another(n)
        # The new server sweeps too: whoever comes first, each hold is released once.
        self.watch.sweep(self.owners.is_alive)

    @rule(n=who, source=sources)
    def call_while_another_writes(self, n: int, source: str) -> None:
        other = sqlite3.connect(self.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        head = self.watch.head()
        _, said = self.servers[n].call("compile", run_id=self.run, source=source)
        assert "nothing was charged, try again" in said
        assert self.watch.head() == head
        other.execute("ROLLBACK")
        other.close()

    @precondition(lambda self: self.heads)
    @rule(data=st.data())
    def keep_a_head(self, data: st.DataObject) -> None:
        kept = data.draw(st.sampled_from(self.heads))
        assert audit(self.path, head=Head.parse(kept)).ok, "nothing that a reply named was rewritten or cut off"

    @invariant()
    def the_audit_is_clean_and_nothing_is_charged_that_no_worker_ran(self) -> None:
        if not hasattr(self, "watch"):
            return
        report = audit(self.path)
        assert report.ok, report.findings
        charged_s = sum(self.watch.purse(run.run_id).settled.device_s for run in self.watch.runs())
        assert charged_s <= self.leased_s + sum(server.leased_s for server in self.servers) + 1e-6

    def teardown(self) -> None:
        if not hasattr(self, "watch"):
            return
        try:
            for n in range(2):
                self.kill(n)
            assert [
                self.watch.open_holds(run.run_id) for run in self.watch.runs() if self.watch.open_holds(run.run_id)
            ] == []
            self.ask(0, None, [], "compile", run_id=self.run, source=forward("return x"), up_to="quick_time")
        finally:
            for server in self.servers:
                server.end(killed=False)
            self.watch.close()
            self.stack.close()
            shutil.rmtree(self.folder)
