"""Lent memory: sealed, aligned, new each time, of the same strides on both sides, poisoned before an answer."""

import os
import random
import signal
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelgate.tools.worker.inputs import Drawn
from kernelgate.tools.worker.lending import ALIGNMENT_BYTES, Loan, MemfdBorrower, MemfdLender
from kernelgate.tools.worker.poison import draw_poison
from kernelgate.tools.worker.pool import InputPool, which_changed
from kernelgate.tools.worker.protocol import Parcel

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip


def borrow(loan: Loan) -> tuple[torch.Tensor, ...]:
    """As the other process would see it, through a second mapping."""
    return MemfdBorrower().open(loan.parcel, os.dup(loan.descriptor))


def lent(*tensors: torch.Tensor) -> tuple[Loan, tuple[torch.Tensor, ...]]:
    loan = MemfdLender().lend(tensors, ())
    borrowed = borrow(loan)
    loan.close_descriptor()
    return loan, borrowed


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_of_each_dtype_arrive_bit_by_bit(dtype: torch.dtype) -> None:
    raw = torch.randint(0, 2, (6 * dtype.itemsize,), dtype=torch.uint8)
    tensor = raw.view(dtype).reshape(2, 3)
    _, (there,) = lent(tensor)
    assert there.dtype == dtype
    assert there.contiguous().view(torch.uint8).tolist() == tensor.view(torch.uint8).tolist()


def test_strides_offsets_and_shared_storages_survive() -> None:
    base = torch.randn(6, 8)
    tensors = [base.t(), base[2:, 1::2], torch.randn(3, 1).expand(3, 5), torch.tensor(4.0), torch.empty(0, 3), base]
    loan, there = lent(*tensors)
    for mine, other in zip(tensors, there, strict=True):
        assert other.shape == mine.shape
        assert other.stride() == mine.stride()
        assert torch.equal(other, mine)
    there[0].zero_()
    assert not there[5].any(), "two views of one storage stay views of one storage"
    assert not loan.tensors[5].any(), "both sides see the same memory"
    assert base.any(), "what was lent is a copy"


def test_storages_are_aligned_and_no_tensor_is_a_view_of_another() -> None:
    _, there = lent(torch.randn(3), torch.randn(5), torch.ones(1, dtype=torch.bool))
    for tensor in there:
        assert tensor.data_ptr() % ALIGNMENT_BYTES == 0
        assert not tensor._is_view()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=6))
def test_any_mixture_of_shapes_fits_without_overlap(shapes: list[tuple[int, int]]) -> None:
    tensors = [torch.full(shape, float(number)) for number, shape in enumerate(shapes)]
    _, there = lent(*tensors)
    for number, tensor in enumerate(there):
        assert bool((tensor == number).all())


def test_each_loan_is_new_memory() -> None:
    first, second = lent(torch.randn(64))[0], lent(torch.randn(64))[0]
    assert first.tensors[0].data_ptr() != second.tensors[0].data_ptr()


def test_lent_memory_cannot_be_resized_or_unsealed() -> None:
    loan = MemfdLender().lend([torch.randn(4)], ())
    try:
        for size in (0, 1 << 20):
            with pytest.raises(PermissionError):
                os.ftruncate(loan.descriptor, size)
    finally:
        loan.close_descriptor()


def test_a_parcel_that_claims_more_than_its_memory_is_refused() -> None:
    loan = MemfdLender().lend([torch.randn(4)], ())
    liar = Parcel(size_bytes=1 << 30, views=loan.parcel.views)
    with pytest.raises(ValueError, match="larger than its memory"):
        MemfdBorrower().open(liar, loan.descriptor)


@pytest.mark.parametrize("dtype", DTYPES)
def test_poison_is_recognised_until_it_is_overwritten(dtype: torch.dtype) -> None:
    loan = MemfdLender().lend((), [torch.empty(4, 4, dtype=dtype)])
    answer = loan.tensors[0]
    poison = draw_poison(dtype, random.Random(7))
    poison.fill(answer)
    assert poison.untouched_share(answer) == 1.0
    answer[:2].copy_(torch.ones(2, 4).to(dtype))
    assert poison.untouched_share(answer) == 0.5
    if dtype.is_floating_point and dtype.itemsize > 1:
        assert bool(answer[2:].isnan().all())
    loan.close_descriptor()


def pool_of(
    arguments: object, exchangeable: tuple[int, ...], continuous: tuple[int, ...] = ()
) -> tuple[InputPool, Loan]:
    pool = InputPool(MemfdLender(), random.Random(3))
    _, loan = pool.add([Drawn(arguments, exchangeable, continuous)], torch.empty(2), replace=True)
    return pool, loan


def test_a_single_changed_byte_is_noticed_and_put_back() -> None:
    pool, loan = pool_of([torch.randn(1000), torch.arange(7)], ())
    entry = pool.entries[0]
    assert not entry.changed()
    entry.lent_tensors[1][6] += 1
    assert entry.changed()
    entry.put_back()
    assert not entry.changed()
    loan.close_descriptor()


def test_a_quick_look_notices_what_would_slow_a_baseline() -> None:
    pool, loan = pool_of([torch.randn(1 << 16)], (0,))
    pool.entries[0].lent_tensors[0].mul_(1e-39)
    assert which_changed([(pool.entries[0], random.Random(5))]) == [pool.entries[0]]
    loan.close_descriptor()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_refreshed_draws_from_a_density_are_new_everywhere_and_of_the_same_kind(dtype: torch.dtype) -> None:
    pool, loan = pool_of([torch.rand(400, 50).to(dtype).t()], (0,), continuous=(0,))
    entry, secret = pool.entries[0], random.Random(9)
    before = entry.lent_tensors[0].clone()
    entry.refresh(secret, lambda: pytest.fail("nothing need be drawn again"))
    after = entry.lent_tensors[0]
    assert float((before == after).double().mean()) < 0.02, "an earlier answer is wrong nearly everywhere"
    assert bool((after >= 0).all())
    assert bool((after <= 1.125).all())
    sizes = [tensor.double().flatten().sort().values for tensor in (before, after)]
    assert float((sizes[1] - sizes[0]).abs().max()) < 0.13
    moved = (after.flatten() - before.flatten()).abs() > 0.13
    assert float(moved.double().mean()) > 0.5, "where a value of about the same size was is another one"
    assert float((after.double().mean() - before.double().mean()).abs()) < 0.02
    assert not entry.changed()
    loan.close_descriptor()


def test_refreshed_draws_of_another_kind_change_places() -> None:
    pool, loan = pool_of([torch.arange(2000).reshape(40, 50).t(), torch.rand(9)], (0, 1), continuous=(1,))
    entry, secret = pool.entries[0], random.Random(9)
    before = entry.lent_tensors[0].clone()
    entry.refresh(secret, lambda: pytest.fail("nothing need be drawn again"))
    after = entry.lent_tensors[0]
    assert not bool((before == after).any())
    assert sorted(before.flatten().tolist()) == sorted(after.flatten().tolist())
    assert not entry.changed()
    loan.close_descriptor()


def test_inputs_that_can_only_change_places_are_drawn_again() -> None:
    pool, loan = pool_of([torch.arange(2000)], (0,))
    entry = pool.entries[0]
    entry.refresh(random.Random(9), lambda: Drawn([torch.arange(2000) + 7], (0,)))
    assert int(entry.lent_tensors[0].sum()) == sum(range(7, 2007)), "what is sorted or counted is another answer"
    loan.close_descriptor()


def test_a_variant_shares_no_memory_and_no_order_with_its_model() -> None:
    pool, loan = pool_of([torch.randn(64), torch.arange(3)], (0,))
    other = pool.variant(lambda: pytest.fail("nothing need be drawn again"))
    mine = pool.entries[0].drawn.tensors
    assert not torch.equal(other.tensors[0], mine[0])
    assert torch.equal(other.tensors[1], mine[1])
    assert other.tensors[0].data_ptr() != mine[0].data_ptr()
    loan.close_descriptor()


TRUNCATES = """
import os, sys
fd = int(sys.argv[1])
try:
    os.ftruncate(fd, 0)
except PermissionError:
    sys.exit(7)
"""


def test_another_process_cannot_kill_the_lender_by_truncation() -> None:
    loan = MemfdLender().lend([torch.ones(1 << 16)], ())
    done = subprocess.run(
        [sys.executable, "-c", TRUNCATES, str(loan.descriptor)], pass_fds=[loan.descriptor], timeout=30, check=False
    )
    assert done.returncode == 7
    assert done.returncode != -signal.SIGBUS
    assert float(loan.tensors[0].sum()) == 1 << 16
    loan.close_descriptor()


def test_which_answer_buffers_count_is_drawn_anew_with_each_poisoning() -> None:
    pool = InputPool(MemfdLender(), random.Random(3), sets=3)
    question, loan = pool.add([Drawn([torch.randn(8)], (0,))] * 2, torch.empty(4), replace=True)
    assert [len(entry.answers) for entry in question.entries] == [3, 3]
    indices = [place.index for entry in question.entries for places in entry.answers for place in places]
    assert len(set(indices)) == 6, "no two share memory"
    entry, secret = pool.entries[0], random.Random(5)
    chosen = set()
    for _ in range(40):
        entry.poison(secret)
        assert entry.answers is entry.sets[entry.chosen]
        assert all(bool(places[""].isnan().all()) for places in entry.sets)
        chosen.add(entry.chosen)
    assert chosen == {0, 1, 2}
    loan.close_descriptor()
