# code = "WRONG_STREAM"
# tries = "Works on a stream of its own that nobody waits for."
# rung = "check"
# accept = ["wrong_values", "nonfinite", "suspicious:DEFERRED"]
# device = "gpu"
import torch

STREAM = torch.cuda.Stream()


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        with torch.cuda.stream(STREAM):
            torch.cuda._sleep(20_000_000)
            y.copy_(torch.softmax(x, -1))
        return y
