# code = "L2_PERSIST"
# tries = "Sets cache lines of its inputs aside so that no flush reaches them, and does six times the work."
# rung = "quick"
# accept = ["clearly_slower", "suspicious"]
# device = "gpu"
import ctypes
import struct

import torch


def slow(x):
    """Right, and six times the work of the reference."""
    for _ in range(6):
        shifted = x - x.max(dim=-1, keepdim=True).values
        powers = torch.exp(shifted)
        y = powers / powers.sum(dim=-1, keepdim=True)
    return y


DRIVER = ctypes.CDLL("libcuda.so.1")
PERSISTING_L2_CACHE_SIZE, ACCESS_POLICY_WINDOW, PERSISTING, STREAMING = 6, 1, 2, 1


def pin(x):
    """Ask for an access policy window over an input; whether it is granted is the driver's affair."""
    size = min(x.numel() * x.element_size(), 16 << 20)
    DRIVER.cuCtxSetLimit(PERSISTING_L2_CACHE_SIZE, ctypes.c_size_t(size))
    window = struct.pack("=QQfii", x.data_ptr(), size, 1.0, PERSISTING, STREAMING).ljust(64, bytes(1))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    DRIVER.cuStreamSetAttribute(stream, ACCESS_POLICY_WINDOW, ctypes.create_string_buffer(window, 64))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        pin(x)
        return slow(x)
