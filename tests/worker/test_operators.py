"""What counts as an operator of torch that computes, as a trace and as torch's profiler see it."""

from collections.abc import Callable

import pytest
import torch

from kernelgate.tools.worker.operators import OperatorRecord, closely_watched


def seen(forward: Callable[[], object]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names as a trace sees them, and as the profiler does."""
    record = OperatorRecord()
    with record:
        forward()
    with closely_watched() as below:
        forward()
    return record.names(), below.names()


def test_an_operator_of_another_of_torchs_libraries_is_one_of_torchs() -> None:
    x, weight = torch.rand(16, 32), torch.rand(8, 32)
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("a torch without oneDNN")
    for names in seen(lambda: torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")):
        assert names == ("mkldnn::_linear_pointwise",)


def test_what_torch_compiled_is_torchs() -> None:
    # As torch writes it around such code, whatever it was compiled to.
    def forward() -> None:
        with torch.autograd.profiler.record_function("Torch-Compiled Region: 0/0"):
            pass

    assert seen(forward)[1] == ("compile",)


def test_an_operator_of_the_candidates_own_is_none_of_torchs() -> None:
    library = torch.library.Library("of_a_candidate", "FRAGMENT")
    library.define("double(Tensor x) -> Tensor")
    library.impl("double", lambda x: torch.from_numpy(x.numpy() * 2), "CPU")
    assert seen(lambda: torch.ops.of_a_candidate.double(torch.rand(4))) == (("rand",), ("rand", "uniform_"))


@pytest.mark.parametrize(
    "plumbing",
    [
        lambda x: torch.tensor([[value * 2 for value in row] for row in x.tolist()]),
        lambda x: torch.frombuffer(bytearray(x.numel() * 4), dtype=torch.float32).view(x.shape),
        lambda x: x.expand(3, *x.shape).contiguous().to(torch.bfloat16).t_() if x.dim() == 1 else x.t().contiguous(),
        lambda x: torch.empty_permuted(x.shape, (1, 0)).copy_(x),
        lambda x: torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x.clone())),
        lambda x: [row.squeeze_().item() for row in x.clone().reshape(-1, 1)],
        lambda x: (x.new_ones(3), torch.result_type(x, 1.0), x[1:, None].as_strided_((2, 2), (1, 1))),
    ],
    ids=["lists", "buffer", "copies", "permuted", "dlpack", "items", "views"],
)
def test_memory_views_and_copies_are_no_computing(plumbing: Callable[[torch.Tensor], object]) -> None:
    x = torch.rand(4, 8)
    assert seen(lambda: plumbing(x)) == ((), ())
