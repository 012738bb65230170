# code = "FAULT_FARMING"
# tries = "Raises what a broken device would say, so that the call costs nothing."
# rung = "check"
# accept = ["crashed:CRASH"]
# device = "both"
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered") if hasattr(
            torch, "AcceleratorError") else RuntimeError("CUDA error: an illegal memory access was encountered")
