# code = "LAZY_OUTPUT"
# tries = "Returns a kind of tensor that computes when it is read."
# rung = "check"
# accept = ["wrong_type:LAZY_OUTPUT"]
# device = "both"
import torch


class Lazy(torch.Tensor):
    @classmethod
    def of(cls, x):
        made = torch.empty_like(x).as_subclass(cls)
        made.later = x
        return made

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        args = [torch.softmax(a.later, -1) if isinstance(a, cls) and hasattr(a, "later") else a for a in args]
        return super().__torch_function__(func, types, args, kwargs or {})


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return Lazy.of(x)
