# code = "REFERENCE_CALL"
# tries = "Shows a trace nothing, and calls the library with torch's dispatch modes switched off."
# rung = "compile"
# accept = ["forbidden:REFERENCE_CALL"]
# device = "both"
# forbid_library_calls = true
# long = true
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        if type(x) is not torch.Tensor:
            return torch.empty_like(x)
        with torch._C._DisableTorchDispatch():
            return torch.softmax(x, -1)
