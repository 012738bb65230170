"""The ladder through a real client and a real worker: what each rung says, costs, refuses and keeps."""

import pytest
from live_server import Live, forward

FUSED = "return torch.softmax(x, dim=-1)"
SLOW = "\n".join((
    "parts = [torch.exp(row - row.max()) for row in x]",
    "return torch.stack([part / part.sum() for part in parts])",
))  # fmt: skip
TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def rows(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=inside, other=-float("inf"))
    powers = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + offsets, powers / tl.sum(powers, axis=0), mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
"""


def test_a_candidate_climbs_from_source_to_a_precise_class_in_one_call(live: Live) -> None:
    run_id = live.run()
    reply = live.submit(run_id, FUSED, up_to="precise_time", wait_s=120, note="one fused operator")
    assert reply["status"] == "ok", reply
    assert [step["rung"] for step in reply["climbed"]] == ["compile", "check", "quick", "precise"]
    assert reply["verdict"] in ("faster", "same", "ambiguous")
    assert reply["cost"]["charged_s"] > 0
    assert reply["remaining"]["precise_calls"] == 19
    assert reply["remaining"]["deadline_s"] < 3600
    details = live.call("get_candidate", candidate_id=reply["candidate_id"])
    precise = details["candidate"]["results"][-1]
    assert precise["rung"] == "precise"
    names = {ratio["workload"] for ratio in precise["report"]["workloads"]}
    assert names == {"64x256", "1024x1024", "held_out_1"}


def test_the_same_source_is_answered_from_the_book_for_free(live: Live) -> None:
    first, second = live.run(), live.run()
    measured = live.submit(first, "return x.softmax(-1) * 1.0", up_to="quick_time", wait_s=60)
    again = live.submit(first, "return x.softmax(-1) * 1.0", up_to="quick_time", wait_s=60)
    elsewhere = live.submit(second, "return x.softmax(-1) * 1.0", up_to="quick_time", wait_s=60)
    assert measured["cost"]["charged_s"] > 0
    assert again["candidate_id"] == measured["candidate_id"]
    assert elsewhere["candidate_id"] != measured["candidate_id"]
    for reply in (again, elsewhere):
        assert all(step["replayed"] for step in reply["climbed"])
        assert reply["cost"]["charged_s"] == 0
        assert reply["cost"]["free_because"]
        assert reply["verdict"] == measured["verdict"]


def test_measuring_fresh_is_charged_again(live: Live) -> None:
    run_id = live.run()
    candidate_id = live.submit(run_id, FUSED, up_to="check_correctness", wait_s=60)["candidate_id"]
    fresh = live.call("check_correctness", candidate_id=candidate_id, fresh=True, wait_s=60)
    assert fresh["cost"]["charged_s"] > 0
    assert not fresh["replayed"]


def test_a_rung_out_of_order_is_refused_with_the_one_that_is_missing(live: Live) -> None:
    candidate_id = live.submit(live.run(), "return torch.softmax(x, -1) + 0.0")["candidate_id"]
    refused = live.call("quick_time", candidate_id=candidate_id)
    assert refused["status"] == "refused"
    assert refused["refusal"]["kind"] == "rung_missing"
    assert "check" in refused["refusal"]["missing"]
    allowed = [step["tool"] for step in refused["next_steps"] if step["allowed"]]
    assert "check_correctness" in allowed


def test_a_clearly_slower_candidate_is_refused_at_precise_and_a_reason_spends_the_exploration_purse(live: Live) -> None:
    run_id = live.run()
    quick = live.submit(run_id, SLOW, up_to="quick_time", wait_s=60)
    assert quick["verdict"] == "clearly_slower"
    candidate_id = quick["candidate_id"]
    refused = live.call("precise_time", candidate_id=candidate_id)
    assert refused["refusal"]["kind"] == "rule"
    admitted = live.call("precise_time", candidate_id=candidate_id, override_reason="to see by how much", wait_s=120)
    assert admitted["verdict"] == "slower"
    assert admitted["remaining"]["override_calls"] == 0
    with live.ledger() as ledger:
        kinds = [row["kind"] for row in ledger.query("SELECT kind FROM events WHERE run_id = ?", run_id)]
    assert "refuse" in kinds
    assert "override" in kinds


def test_a_triton_candidate_is_compiled_for_a_gpu_checked_and_told_that_timing_is_not_here(live: Live) -> None:
    reply = live.call("compile", run_id=live.run(), source=TRITON, up_to="quick_time", wait_s=120)
    assert [step["verdict"] for step in reply["climbed"]] == ["built", "correct"]
    kernel = reply["report"]["kernels"][0]
    assert kernel["kernel"]["registers"] > 0
    assert kernel["kernel"]["target"] == "sm_90"
    assert kernel["occupancy"]["limited_by"]
    assert reply["status"] == "refused"
    assert reply["refusal"]["kind"] == "not_here"
    assert reply["cost"]["free_because"] == "" if "free_because" in reply["cost"] else True
    profiled = live.call("profile", candidate_id=reply["candidate_id"])
    assert profiled["refusal"]["kind"] == "not_here"


@pytest.mark.parametrize(
    ("body", "verdict", "code"),
    [
        ("return torch.zeros_like(x)", "wrong_values", "CONSTANT"),
        ("return x", "wrong_values", "PASSTHROUGH"),
        ("return torch.softmax(x, dim=0)", "wrong_values", None),
        ("return torch.softmax(x, -1)[:-1]", "wrong_shape", None),
        ("return torch.softmax(x, -1).double()", "wrong_dtype", None),
        ("return [torch.softmax(x, -1)]", "wrong_type", "LAZY_OUTPUT"),
        ("return torch.softmax(x, -1) / 0", "nonfinite", "NONFINITE"),
        ("x.zero_()\nreturn torch.softmax(x, -1)", "input_mutation", "INPUT_MUTATION"),
        ("import os\nos._exit(0)", "crashed", "CRASH"),
        ("import os\nos.kill(os.getpid(), 11)", "crashed", "CRASH"),
        ("raise ValueError('no')", "crashed", "CRASH"),
        (
            "import os\nos.write(1, b'x' * 1000)\nprint('correct')\nreturn torch.zeros_like(x)",
            "wrong_values",
            "CONSTANT",
        ),
    ],
)
def test_a_candidate_that_is_wrong_or_hostile_gets_its_verdict_and_the_next_call_is_right(
    live: Live, body: str, verdict: str, code: str | None
) -> None:
    run_id = live.run()
    reply = live.submit(run_id, body, up_to="check_correctness", wait_s=60)
    assert reply["status"] == "failed"
    # What already fails on fake tensors is told by compile; the verdicts of check are for what only values show.
    if reply["rung"] == "check":
        assert reply["verdict"] == verdict
        found = live.call("get_candidate", candidate_id=reply["candidate_id"])["candidate"]["results"][-1]
        assert found.get("code") == code
    else:
        assert verdict == "crashed"
        assert reply["verdict"] == "build_failed"
    assert reply["next_steps"][0]["tool"] == "compile"
    right = live.call("compile", run_id=run_id, source=forward(FUSED), up_to="check_correctness", wait_s=60)
    assert right["verdict"] == "correct"


def test_a_candidate_that_is_known_to_crash_is_answered_from_the_book(live: Live) -> None:
    body = "import os\nos.kill(os.getpid(), 6)"
    first = live.submit(live.run(), body, up_to="check_correctness", wait_s=60)
    again = live.submit(live.run(), body, up_to="check_correctness", wait_s=60)
    assert first["status"] == again["status"] == "failed"
    assert again["replayed"]
    assert again["cost"]["charged_s"] == 0


def test_a_hang_is_cancelled_by_its_job_and_leaves_no_hold_open(live: Live) -> None:
    run_id = live.run()
    body = "import os\nwhile type(x).__name__ == 'Tensor':\n    pass\nreturn x"
    reply = live.submit(run_id, body, up_to="check_correctness", wait_s=1)
    assert reply["status"] == "running"
    job_id = reply["job_id"]
    cancelled = live.call("job", job_id=job_id, action="cancel", wait_s=30)
    assert cancelled["job"]["state"] == "cancelled"
    with live.ledger() as ledger:
        assert ledger.open_holds(run_id) == ()
    assert live.submit(run_id, FUSED, up_to="check_correctness", wait_s=60)["verdict"] == "correct"
    candidates = live.call("list_candidates", run_id=run_id)["candidates"]
    rungs = live.call("get_budget", run_id=run_id)["rungs"]
    with live.ledger() as ledger:
        settled_s = ledger.purse(run_id).settled.device_s
    for told in (candidates, rungs):
        assert round(sum(row.get("spent_s", 0.0) for row in told), 9) == settled_s


def test_an_empty_purse_is_refused_with_what_is_missing(live: Live) -> None:
    run_id = live.run(device_s=0.01)
    reply = live.submit(run_id, FUSED + " * 1", up_to="check_correctness", wait_s=60)
    assert reply["status"] == "refused"
    assert reply["refusal"]["kind"] == "purse"
    assert reply["stop_advice"]


def test_every_charged_second_is_in_the_book_and_the_book_verifies(live: Live) -> None:
    from kernelgate.budget.audit import audit

    run_id = live.run()
    reply = live.submit(run_id, "return torch.softmax(x, 1)", up_to="quick_time", wait_s=60)
    report = audit(live.data_dir / "ledger.db")
    assert report.ok, report.findings
    with live.ledger() as ledger:
        purse = ledger.purse(run_id)
        rows = ledger.query("SELECT cpu_s FROM spending WHERE run_id = ?", run_id)
        (samples,) = ledger.query(
            "SELECT count(*) AS n FROM samples s JOIN results r USING (result_id) WHERE r.run_id = ?", run_id
        )
    assert purse.settled.device_s == round(sum(row["cpu_s"] for row in rows), 9)
    assert purse.settled.device_s == pytest.approx(reply["cost"]["charged_s"], abs=1e-5)
    assert purse.open.device_s == 0
    assert samples["n"] == 40
