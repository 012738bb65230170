"""Faults in what arithmetic is done with: float64 that nobody needs, matrix products beside the tensor cores."""

from typing import Final

from one_fault_case import OneFault, elementwise, matmul, row_softmax
from one_fault_tasks import GELU, HALF_MATMUL, SOFTMAX

_DOUBLE_GELU: Final = "(0.5 * x.to(tl.float64) * (1 + tl.erf(x.to(tl.float64) * 0.7071067811865476))).to(tl.float32)"
_BROADCAST: Final = "total += tl.sum(tl.trans(a).to(tl.float32)[:, :, None] * b.to(tl.float32)[:, None, :], axis=0)"
"""Over the first axis: a sum over the middle one is the pattern that Triton makes a `dot` of."""
_FULL_FLOATS: Final = 'total = tl.dot(a.to(tl.float32), b.to(tl.float32), total, input_precision="ieee")'

ARITHMETIC: Final = (
    OneFault("double_gelu", GELU, elementwise(_DOUBLE_GELU, block=1024, warps=8), ("precision",),
             "an error function in float64 takes longer than the memory does"),
    OneFault("double_softmax", SOFTMAX, row_softmax(warps=8, x="x.to(tl.float64)"), ("precision",),
             "exponentials, sum and division in float64 for float32 rows"),
    OneFault("broadcast_matmul", HALF_MATMUL, matmul(m=16, n=64, k=16, warps=8, stages=1, dot=_BROADCAST),
             ("tensor_cores_unused",), "a float16 product as a sum of broadcast products"),
    OneFault("full_float_matmul", HALF_MATMUL, matmul(m=128, n=64, k=16, warps=8, stages=3, dot=_FULL_FLOATS),
             ("tensor_cores_unused",), "a float16 product in full float32, which no tensor core takes"),
)  # fmt: skip
