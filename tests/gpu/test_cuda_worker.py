"""Candidates on a real GPU, through a real supervisor with all its walls."""

import pytest
from gpu_calls import (
    HOSTILE,
    RELU_CANDIDATE,
    Gpu,
    bundled,
    forward,
    known_good,
    large_task,
    triton_softmax,
)

from kernelgate.tools.kit.facts import Qualification

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]
SOFTMAX = bundled("softmax")
FUSED = forward("return torch.softmax(x, -1)")


def test_children_behind_walls_use_the_gpu_and_lend_memory(gpu: Gpu) -> None:
    hello = gpu.hello()
    assert hello.confinement
    assert not [gap for gap in hello.gaps if gap.startswith("CUDA")], hello.gaps


def test_a_bundled_task_is_sound_on_the_gpu(gpu: Gpu) -> None:
    reply = gpu.call("qualify", SOFTMAX, None, cap_s=120.0)
    assert not reply.fault
    facts = Qualification.model_validate(reply.facts)
    assert facts.error == ""
    assert all(reference.finite and reference.deterministic for reference in facts.references)
    assert not any(trial.passes for trial in facts.trials)


@pytest.mark.parametrize("name", ["triton", "torch"])
def test_right_candidates_climb_the_whole_ladder(gpu: Gpu, name: str) -> None:
    source = triton_softmax() if name == "triton" else FUSED
    checked, _ = gpu.judged("check_correctness", SOFTMAX, source)
    assert checked.verdict == "correct", checked.summary
    quick, _ = gpu.judged("quick_time", SOFTMAX, source)
    assert quick.verdict in ("maybe_faster", "undecided"), quick.summary
    precise, _ = gpu.judged("precise_time", SOFTMAX, source)
    assert precise.verdict == "faster", precise.summary
    assert precise.outside_low is not None
    assert precise.outside_low > 1


def test_the_reference_against_itself_is_no_faster(gpu: Gpu) -> None:
    report, _ = gpu.judged("precise_time", SOFTMAX, known_good(SOFTMAX), floor=0.01)
    assert report.verdict in ("same", "ambiguous"), report.summary
    assert report.ratio == pytest.approx(1.0, abs=0.02)
    assert report.outside_ratio == pytest.approx(1.0, abs=0.05)


def test_a_profile_names_kernels(gpu: Gpu) -> None:
    report, _ = gpu.judged("profile", SOFTMAX, triton_softmax())
    assert report.verdict in ("diagnosed", "no_finding", "not_permitted"), report.summary
    if report.verdict != "not_permitted":
        assert any("rows" in operator.name for operator in report.operators)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_candidates_are_told_what_they_are_and_the_next_is_right(gpu: Gpu, name: str) -> None:
    source, verdicts, cap_s = HOSTILE[name]
    report, _ = gpu.judged("check_correctness", SOFTMAX, source, cap_s=cap_s)
    assert report.verdict in verdicts, report.summary
    after, _ = gpu.judged("check_correctness", SOFTMAX, FUSED)
    assert after.verdict == "correct", after.summary


def test_inputs_of_six_gigabytes_are_checked_and_timed(gpu: Gpu) -> None:
    checked, _ = gpu.judged("check_correctness", large_task(), RELU_CANDIDATE, cap_s=120.0)
    assert checked.verdict == "correct", checked.summary
    quick, _ = gpu.judged("quick_time", large_task(), RELU_CANDIDATE, cap_s=120.0)
    assert quick.verdict in ("maybe_faster", "undecided", "clearly_slower"), quick.summary


FORGED = """
import torch
real = torch.cuda.Event.elapsed_time
torch.cuda.Event.elapsed_time = lambda self, other: real(self, other) / 3
"""


def test_forged_events_do_not_make_a_candidate_faster(gpu: Gpu) -> None:
    report, _ = gpu.judged("precise_time", SOFTMAX, FORGED + known_good(SOFTMAX))
    assert report.verdict in ("suspicious", "ambiguous", "impossible"), report.summary
