"""What a forward reads of its inputs and weights bounds how fast anybody may be: of a table only what is fetched."""

from collections.abc import Callable

import pytest
import torch

from kernelgate.tools.worker.reads import BytesRead

TABLE = torch.randn(1000, 64)
ROWS = torch.tensor([3, 999])
X = torch.randn(64, 32)


@pytest.mark.parametrize(
    ("tensors", "forward", "expected"),
    [
        ((X,), lambda: torch.softmax(X, -1), X.nbytes),
        ((X,), lambda: torch.relu(X) + torch.exp(X), X.nbytes),
        ((X,), lambda: X.t().contiguous(), X.nbytes),
        ((X,), lambda: X[3].relu(), X[3].nbytes),
        ((X,), lambda: X.view(-1).unsqueeze(0), 0),
        ((TABLE, ROWS), lambda: torch.nn.functional.embedding(ROWS, TABLE), 2 * TABLE[0].nbytes + ROWS.nbytes),
        ((TABLE, ROWS), lambda: TABLE[ROWS].sum(), 2 * TABLE[0].nbytes + ROWS.nbytes),
        ((TABLE, ROWS), lambda: TABLE.index_select(0, ROWS), 2 * TABLE[0].nbytes + ROWS.nbytes),
        ((X, X.view(-1)), lambda: X.sum(), X.nbytes),
    ],
    ids=["once", "twice", "transposed", "a row", "views", "embedding", "index", "index_select", "one storage"],
)
def test_each_byte_counts_once_and_only_where_it_is_read(
    tensors: tuple[torch.Tensor, ...], forward: Callable[[], torch.Tensor], expected: int
) -> None:
    with torch.no_grad(), BytesRead(tensors) as reads:
        forward()
    assert reads.total() == expected
