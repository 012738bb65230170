# tries = "Works on two streams and waits for both."
# device = "gpu"
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.side = torch.cuda.Stream()

    def forward(self, x):
        y = torch.empty_like(x)
        here = torch.cuda.current_stream()
        self.side.wait_stream(here)
        half = x.shape[0] // 2
        with torch.cuda.stream(self.side):
            y[half:] = torch.softmax(x[half:], -1)
        y[:half] = torch.softmax(x[:half], -1)
        here.wait_stream(self.side)
        return y
