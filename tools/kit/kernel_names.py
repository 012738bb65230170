"""Names of kernels as people say them. Pure."""

import re
from typing import Final

MAX_NAME_CHARS: Final = 80
MAX_READ_CHARS: Final = 500
"""Of a name that a candidate wrote: the patterns take time with the square of it. What is computed stands before."""


def plain_name(name: str) -> str:
    """An operator's or kernel's name without its C++ signature: `vectorized_elementwise_kernel (exp_kernel_cuda)`."""
    name = name[:MAX_READ_CHARS]
    # A name in an unnamed namespace has parentheses of its own, in front of it.
    signature = re.match(r"(?:void )?([\w:]*\w)[<(](.*)", name.replace("(anonymous namespace)::", ""), re.DOTALL)
    if signature is None:
        return name[:MAX_NAME_CHARS]
    own = signature[1].rpartition("::")[2]
    # What a generic kernel computes stands in its arguments, as a function, a functor or the name of a shape.
    meant = re.search(r"(\b\w+_kernel_cuda|\b\w+Functor|cutlass_\w+)\b", signature[2])
    return (own if meant is None else f"{own} ({meant[1]})")[:MAX_NAME_CHARS]
