# tries = "Captures a graph once for each shape, and copies each input into it before it is replayed."
# device = "gpu"
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.graphs = {}

    def forward(self, x):
        if x.shape not in self.graphs:
            inside = x.clone()
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.softmax(inside, -1)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = torch.softmax(inside, -1)
            self.graphs[x.shape] = (graph, inside, out)
        graph, inside, out = self.graphs[x.shape]
        inside.copy_(x)
        graph.replay()
        return out.clone()
