# code = "REFERENCE_CALL"
# tries = "Calls the library inside an operator of its own, which a trace does not look into."
# rung = "compile"
# accept = ["forbidden:REFERENCE_CALL"]
# device = "both"
# forbid_library_calls = true
# long = true
import torch


@torch.library.custom_op("own::softmax", mutates_args=())
def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


@softmax.register_fake
def _(x):
    return torch.empty_like(x)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return softmax(x)
