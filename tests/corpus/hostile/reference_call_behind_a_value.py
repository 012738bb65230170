# code = "REFERENCE_CALL"
# tries = "Reads a value before it calls the library, so that no trace comes as far."
# rung = "compile"
# accept = ["forbidden:REFERENCE_CALL"]
# device = "both"
# forbid_library_calls = true
# long = true
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        if x.numpy(force=True)[0, 0] == 0.12345:
            return x
        return torch.softmax(x, -1)
