# tries = "Works in place on its own copy."
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x.clone()
        y.sub_(y.amax(-1, keepdim=True)).exp_()
        return y.div_(y.sum(-1, keepdim=True))
