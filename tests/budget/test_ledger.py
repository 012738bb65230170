import stat
from pathlib import Path

import pytest
from book_scenario import (
    ACCOUNT,
    ENVIRONMENT,
    OWNER,
    TARGET,
    TASK,
    Scenario,
    purse_adds_up,
    result_input,
    run_request,
    sample_inputs,
)
from pydantic import ValidationError

from kernelgate.budget.artifacts import ArtifactGone
from kernelgate.budget.errors import HoldClosed, IdempotencyConflict, UnknownId
from kernelgate.budget.model import ALL_ACCOUNTS, Amount, Budget, Rung, Verdict
from kernelgate.budget.outcomes import Admitted, Refused, Replayed
from kernelgate.budget.reads import RunClosed
from kernelgate.budget.records import ArtifactInput, JobRequest, ResultInput
from kernelgate.budget.runs import UnknownRule
from kernelgate.tasks.model import Candidate, sha256_hex


def test_a_new_book_is_private_to_its_owner(book: Scenario) -> None:
    assert stat.S_IMODE(book.path.stat().st_mode) == 0o600


def test_a_run_starts_with_all_of_its_budget(book: Scenario) -> None:
    purse = book.ledger.purse(book.run.run_id)
    assert book.run.run_id == "r1"
    assert (purse.device_s_left, purse.deadline_s_left, purse.calls_left(Rung.quick)) == (100.0, 1000.0, 60)
    assert purse_adds_up(book)


def test_the_same_idempotency_key_gives_the_same_run(book: Scenario) -> None:
    request = run_request(idempotency_key="k")
    first, again = book.ledger.start_run(TASK, request), book.ledger.start_run(TASK, request)
    assert first == again
    assert len(book.ledger.runs(ACCOUNT)) == 2


def test_the_same_idempotency_key_with_other_arguments_is_a_conflict(book: Scenario) -> None:
    book.ledger.start_run(TASK, run_request(idempotency_key="k"))
    with pytest.raises(IdempotencyConflict, match="with other arguments"):
        book.ledger.start_run(TASK, run_request(idempotency_key="k", arguments_sha256=sha256_hex("other")))


def test_two_accounts_may_use_the_same_idempotency_key(book: Scenario) -> None:
    mine = book.ledger.start_run(TASK, run_request(idempotency_key="k"))
    yours = book.ledger.start_run(TASK, run_request(idempotency_key="k", account="you"))
    assert mine.run_id != yours.run_id


def test_an_unknown_rule_or_parameter_is_named(book: Scenario) -> None:
    with pytest.raises(UnknownRule, match="flat, halving, threshold"):
        book.ledger.start_run(TASK, run_request(rule="lottery"))
    with pytest.raises(UnknownRule, match="eta, overlap_limit, wide_eta"):
        book.ledger.start_run(TASK, run_request(rule="halving", parameters={"etta": 3.0}))


def test_a_run_of_another_account_reads_as_unknown(book: Scenario) -> None:
    with pytest.raises(UnknownId, match="unknown run 'r1'"):
        book.ledger.run("r1", account="you")
    with pytest.raises(UnknownId, match="unknown candidate"):
        book.ledger.candidate(book.candidate().candidate_id, account="you")


def test_the_same_source_is_the_same_candidate_and_its_new_note_an_event(book: Scenario) -> None:
    candidate = Candidate(files={"candidate.py": "x = 1\n"})
    first, created = book.ledger.register_candidate("r1", candidate, account=ACCOUNT, note="first")
    again, created_again = book.ledger.register_candidate("r1", candidate, account=ACCOUNT, note="second")
    assert (created, created_again) == (True, False)
    assert first == again
    notes = book.ledger.query("SELECT candidate_id, reason FROM events WHERE kind = 'note' AND rows_sha256 IS NULL")
    assert notes == [{"candidate_id": first.candidate_id, "reason": "second"}]


def test_a_parent_must_be_in_the_same_run(book: Scenario) -> None:
    other = book.ledger.start_run(TASK, run_request())
    stranger = book.candidate(run_id=other.run_id)
    with pytest.raises(UnknownId, match="in run 'r1'"):
        book.candidate(parent_id=stranger.candidate_id)


def test_a_hold_is_open_until_it_is_settled_at_what_was_measured(book: Scenario) -> None:
    candidate = book.climb(Rung.compile)
    hold = book.hold(candidate, Rung.check, cpu_s=2.0)
    assert (hold.purse.open.device_s, hold.purse.device_s_left) == (2.0, 98.0)
    settled = book.ledger.settle(hold.hold_seq, Amount(calls=1, cpu_s=0.75), result_input(Rung.check))
    assert settled.charged == Amount(calls=1, cpu_s=0.75)
    assert (settled.purse.open.device_s, settled.purse.settled.device_s) == (0.0, 0.75)
    assert settled.purse.calls_left(Rung.check) == 99
    assert purse_adds_up(book)


def test_a_released_hold_returns_all_of_it_and_books_used_seconds_on_the_house(book: Scenario) -> None:
    candidate = book.climb(Rung.compile)
    before = book.ledger.purse("r1")
    hold = book.hold(candidate, Rung.check, cpu_s=3.0)
    released = book.ledger.release(hold.hold_seq, "fault_of_ours", "the referee died", house_s=0.5)
    assert released.purse == before
    assert book.ledger.query("SELECT sum(cpu_s) AS s FROM events WHERE account_id = 'house'") == [{"s": 0.5}]
    assert purse_adds_up(book)


def test_a_hold_ends_exactly_once(book: Scenario) -> None:
    candidate = book.climb(Rung.compile)
    hold = book.hold(candidate, Rung.check)
    book.ledger.settle(hold.hold_seq, Amount(calls=1, cpu_s=0.1), result_input(Rung.check))
    with pytest.raises(HoldClosed, match="is its settle"):
        book.ledger.settle(hold.hold_seq, Amount(calls=1, cpu_s=0.1), result_input(Rung.check))
    with pytest.raises(HoldClosed, match="is its settle"):
        book.ledger.release(hold.hold_seq, "fault_of_ours")
    assert not book.ledger.is_open(hold.hold_seq)
    assert purse_adds_up(book)


def test_work_that_was_cancelled_is_charged_without_a_result(book: Scenario) -> None:
    candidate = book.climb(Rung.compile)
    hold = book.hold(candidate, Rung.check, cpu_s=1.0)
    settled = book.ledger.settle_unjudged(hold.hold_seq, Amount(calls=1, cpu_s=1.5), "cancelled")
    assert (settled.result_id, settled.charged.cpu_s, settled.overrun_s) == (None, 1.0, 0.5)
    assert (settled.purse.open.device_s, settled.purse.settled.device_s) == (0.0, 1.0)
    with pytest.raises(HoldClosed, match="is its settle"):
        book.ledger.release(hold.hold_seq, "cancelled_unstarted")
    assert book.refused(candidate, Rung.quick).missing.startswith("check:")
    assert find(book, candidate.source_sha256, Rung.check) is None
    assert purse_adds_up(book)


def test_less_than_asked_is_held_when_little_is_left_but_not_less_than_the_least(tmp_path: Path) -> None:
    book = Scenario(tmp_path / "book.db", budget=Budget(device_s=1.5))
    candidate = book.climb(Rung.compile)
    book.hold(candidate, Rung.check, cpu_s=1.0)
    refused = book.refused(candidate, Rung.check, cpu_s=2.0, least=Amount(cpu_s=0.75))
    assert refused.kind == "purse"
    assert "0.500 device seconds are left" in refused.why
    assert "0.250 more" in refused.missing
    assert book.hold(candidate, Rung.check, cpu_s=2.0, least=Amount(cpu_s=0.25)).hold.cpu_s == 0.5
    assert book.refused(candidate, Rung.check, cpu_s=2.0).kind == "purse"
    assert purse_adds_up(book)


def test_calls_and_deadline_run_out_too(tmp_path: Path) -> None:
    book = Scenario(tmp_path / "book.db", budget=Budget(check_calls=1, deadline_s=2.0))
    candidate = book.climb(Rung.compile)
    book.hold(candidate, Rung.check, work_s=0.5)
    refused = book.refused(candidate, Rung.check)
    assert (refused.kind, refused.why) == ("purse", "All 1 check calls of this run are used or held.")
    book.hold(book.candidate(), Rung.compile, work_s=5.0)
    assert book.refused(book.candidate(), Rung.compile).kind == "deadline"
    assert purse_adds_up(book)


def test_an_accounts_cap_binds_all_of_its_runs_together(book: Scenario) -> None:
    book.ledger.record_account(ACCOUNT, device_s_cap=1.0)
    other = book.ledger.start_run(TASK, run_request())
    book.hold(book.climb(Rung.compile), Rung.check, cpu_s=0.75)
    assert book.ledger.purse(other.run_id).device_s_left == 100.0
    candidate = book.climb(Rung.compile)
    refused = book.refused(candidate, Rung.check, cpu_s=0.5, least=Amount(cpu_s=0.5))
    assert "under the cap of the account" in refused.why


def test_a_cap_over_all_accounts_binds_them_together_and_the_smaller_one_counts(book: Scenario) -> None:
    theirs = book.ledger.start_run(TASK, run_request(account="another"))
    source, _ = book.ledger.register_candidate(
        theirs.run_id, Candidate(files={"candidate.py": "theirs"}), account="another"
    )
    asked = JobRequest(run_id=theirs.run_id, account="another", tool="compile", arguments={}, owner=OWNER)
    job, _ = book.ledger.open_job(asked)
    request = book.request(source, Rung.compile, job_id=job.job_id)
    taken = request.model_copy(update={"account": "another", "hold": Amount(calls=1, cpu_s=0.75)})
    assert isinstance(book.ledger.admit(taken), Admitted)
    candidate = book.climb(Rung.compile)
    book.ledger.set_caps({ALL_ACCOUNTS: 1.0, ACCOUNT: 0.2})
    refused = book.refused(candidate, Rung.check, cpu_s=0.5, least=Amount(cpu_s=0.5))
    assert refused.why.startswith("0.200 device seconds are left under the cap")
    book.ledger.set_caps({ALL_ACCOUNTS: 1.0})
    refused = book.refused(candidate, Rung.check, cpu_s=0.5, least=Amount(cpu_s=0.5))
    assert refused.why.startswith("0.250 device seconds are left under the cap of the account or of all accounts")
    book.hold(candidate, Rung.check, cpu_s=0.2)
    assert purse_adds_up(book)


def test_a_rung_is_shut_until_the_ones_below_have_passed(book: Scenario) -> None:
    candidate = book.candidate()
    refused = book.refused(candidate, Rung.quick)
    assert (refused.kind, refused.missing) == ("rung_missing", "compile: a passing result.")
    book.measure(candidate, Rung.compile)
    assert book.refused(candidate, Rung.quick).missing.startswith("check:")
    book.measure(candidate, Rung.check, Verdict.wrong_values)
    refused = book.refused(candidate, Rung.quick)
    assert "wrong_values" in refused.why
    assert book.ledger.query("SELECT count(*) AS n FROM events WHERE kind = 'refuse'") == [{"n": 3}]
    assert purse_adds_up(book)


def test_a_rung_passed_elsewhere_does_not_count_here(book: Scenario) -> None:
    candidate = book.climb(Rung.check)
    elsewhere = book.ledger.record_environment(TARGET)
    assert book.refused(candidate, Rung.quick, environment_id=elsewhere).missing.startswith("check:")


def test_a_later_failure_shuts_the_rungs_above_again(book: Scenario) -> None:
    candidate = book.climb(Rung.quick)
    book.measure(candidate, Rung.check, Verdict.wrong_values)
    assert "did not pass check" in book.refused(candidate, Rung.precise).why


def test_nothing_is_admitted_to_a_closed_run_but_open_holds_still_end(book: Scenario) -> None:
    candidate = book.climb(Rung.compile)
    hold = book.hold(candidate, Rung.check)
    closed = book.ledger.close_run("r1", "finished", ACCOUNT)
    assert closed.closed == "finished"
    assert book.ledger.close_run("r1", "again") == closed
    assert book.refused(candidate, Rung.check).kind == "deadline"
    with pytest.raises(RunClosed, match="start a new run"):
        book.candidate()
    book.ledger.settle(hold.hold_seq, Amount(calls=1, cpu_s=0.1), result_input(Rung.check))
    assert purse_adds_up(book)


def test_a_settle_keeps_result_samples_artifacts_and_observation(book: Scenario) -> None:
    hold = book.hold(book.climb(Rung.check), Rung.quick)
    settled = book.ledger.settle(
        hold.hold_seq,
        Amount(calls=1, cpu_s=0.5),
        result_input(Rung.quick, ratio=1.25),
        sample_inputs(1),
        (ArtifactInput(name="run.log", data=b"hello"),),
        {"load": 0.5},
    )
    result = book.ledger.result(settled.result_id)
    assert (result.ratio, result.verdict, result.device_s, result.passed) == (1.25, Verdict.maybe_faster, 0.5, True)
    baseline, own = book.ledger.samples(result.result_id)
    assert (baseline.side, own.side, own.samples_us) == ("baseline", "candidate", (1.5, 2.25, 3.0))
    (blob,) = book.ledger.query("SELECT samples_us FROM samples WHERE side = 'candidate'")
    assert blob["samples_us"][:4] == b"\x00\x00\xc0\x3f"  # 1.5 as little-endian float32
    (artifact,) = book.ledger.artifacts(result.candidate_id)
    assert book.ledger.read_artifact(artifact) == b"hello"
    assert purse_adds_up(book)


def test_a_result_of_another_rung_or_without_its_number_cannot_be_written(book: Scenario) -> None:
    hold = book.hold(book.climb(Rung.compile), Rung.check)
    with pytest.raises(ValueError, match="is for check"):
        book.ledger.settle(hold.hold_seq, Amount(calls=1), result_input(Rung.quick))
    with pytest.raises(ValidationError, match="never says built"):
        ResultInput(rung=Rung.check, verdict=Verdict.built, report={}, workload_set="small")
    with pytest.raises(ValidationError, match="needs a score"):
        ResultInput(rung=Rung.quick, verdict=Verdict.undecided, report={}, workload_set="small")


def find(book: Scenario, source_sha256: str, rung: Rung, environment_id: str | None = None):
    return book.ledger.find_replay(
        account=ACCOUNT, task_digest=TASK.digest, source_sha256=source_sha256, rung=rung, workload_set="small",
        environment_id=environment_id or book.environment_id, plan_digest="",
    )  # fmt: skip


def test_the_same_source_in_another_run_is_answered_from_the_book_for_free(book: Scenario) -> None:
    first = book.climb(Rung.quick, "same = 1\n", ratio=1.4)
    other = book.ledger.start_run(TASK, run_request())
    again = book.candidate("same = 1\n", run_id=other.run_id)
    before = book.ledger.purse(other.run_id)
    for rung, where in ((Rung.compile, TARGET.environment_id), (Rung.check, None), (Rung.quick, None)):
        source = find(book, again.source_sha256, rung, where)
        assert source is not None
        assert source.candidate_id == first.candidate_id
        replayed = book.ledger.record_replay(
            account=ACCOUNT, run_id=other.run_id, candidate_id=again.candidate_id, source_result_id=source.result_id
        )
        assert isinstance(replayed, Replayed)
        assert (replayed.result.replay_of, replayed.result.device_s) == (source.result_id, 0.0)
    assert book.ledger.purse(other.run_id) == before
    (seen,) = book.ledger.history(other.run_id).quick
    assert (seen.candidate_id, seen.ratio, seen.seq) == (again.candidate_id, 1.4, book.ledger.head().seq)
    assert purse_adds_up(book)


def test_a_replay_does_not_open_a_rung_whose_lower_one_is_missing(book: Scenario) -> None:
    book.climb(Rung.quick, "same = 1\n")
    other = book.ledger.start_run(TASK, run_request())
    again = book.candidate("same = 1\n", run_id=other.run_id)
    source = find(book, again.source_sha256, Rung.quick)
    assert source is not None
    refused = book.ledger.record_replay(
        account=ACCOUNT, run_id=other.run_id, candidate_id=again.candidate_id, source_result_id=source.result_id
    )
    assert isinstance(refused, Refused)
    assert refused.kind == "rung_missing"


def test_a_candidate_known_to_hang_is_found_but_a_fault_of_ours_is_not(book: Scenario) -> None:
    hanging = book.climb(Rung.compile)
    book.measure(hanging, Rung.check, Verdict.timed_out)
    found = find(book, hanging.source_sha256, Rung.check)
    assert found is not None
    assert found.verdict is Verdict.timed_out
    unlucky = book.climb(Rung.compile)
    book.ledger.release(book.hold(unlucky, Rung.check).hold_seq, "fault_of_ours")
    assert find(book, unlucky.source_sha256, Rung.check) is None


def test_another_accounts_result_is_never_an_answer(book: Scenario) -> None:
    candidate = book.climb(Rung.compile)
    key = {"task_digest": TASK.digest, "source_sha256": candidate.source_sha256, "rung": Rung.compile,
           "workload_set": "small", "environment_id": TARGET.environment_id, "plan_digest": ""}  # fmt: skip
    assert book.ledger.find_replay(account=ACCOUNT, **key) is not None
    assert book.ledger.find_replay(account="you", **key) is None


def test_an_artifact_that_was_changed_on_disk_is_not_served(book: Scenario) -> None:
    hold = book.hold(book.candidate(), Rung.compile)
    book.ledger.settle(
        hold.hold_seq, Amount(calls=1), result_input(Rung.compile), artifacts=(ArtifactInput(name="a", data=b"x"),)
    )
    (artifact,) = book.ledger.artifacts("c1")
    file = book.path.parent / (artifact.path or "")
    file.write_bytes(b"y")
    with pytest.raises(ArtifactGone, match="changed on disk"):
        book.ledger.read_artifact(artifact)
    file.unlink()
    with pytest.raises(ArtifactGone, match="gone from beside the book"):
        book.ledger.read_artifact(artifact)


def test_prices_are_learned_from_passing_measured_results(book: Scenario) -> None:
    assert book.ledger.prices(TASK.digest, ENVIRONMENT.environment_id) == {}
    for _ in range(9):
        book.measure(book.climb(Rung.compile), Rung.check, cpu_s=0.2)
    book.measure(book.climb(Rung.compile), Rung.check, Verdict.crashed, cpu_s=0.9)
    price = book.ledger.prices(TASK.digest, ENVIRONMENT.environment_id)[Rung.check]
    assert (price.n, price.device_s_median) == (9, 0.2)
    assert price.hold_device_s == pytest.approx(0.8)


def test_idle_runs_expire_and_busy_ones_do_not(tmp_path: Path) -> None:
    book = Scenario(tmp_path / "book.db")
    idle = book.ledger.start_run(TASK, run_request())
    assert book.ledger.expire_runs(idle_s=3600.0) == ()
    assert book.ledger.expire_runs(idle_s=-1.0) == (idle.run_id,)  # the first run has an active job
    assert "expired" in (book.ledger.run(idle.run_id).closed or "")


def test_what_the_house_knows_comes_back(book: Scenario) -> None:
    ledger, facts = book.ledger, {"noise_floor_pct": 0.5}
    ledger.record_qualification(TASK, ENVIRONMENT, qualified=True, why="fit", facts={"n": 1}, paid=Amount(cpu_s=1.0))
    ledger.record_calibration(ENVIRONMENT, "noise", facts, paid=Amount(cpu_s=2.0), task_digest=TASK.digest)
    ledger.record_observation(ENVIRONMENT, {"load": 1.0})
    found = ledger.qualification(TASK.digest, ENVIRONMENT.environment_id)
    assert found is not None
    assert (found.qualified, found.why) == (True, "fit")
    noise = ledger.calibration(ENVIRONMENT.environment_id, "noise", TASK.digest)
    assert noise is not None
    assert noise.facts == facts
    assert ledger.calibration(ENVIRONMENT.environment_id, "noise") is None
    assert ledger.task(TASK.digest).spec["source"] == TASK.source
    assert ledger.environment(ENVIRONMENT.environment_id) == ENVIRONMENT.facts
