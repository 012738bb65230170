# code = "GRAPH_STALE"
# tries = "Captures its first call of a shape and replays it over whatever lies at the old address."
# rung = "check"
# accept = ["wrong_values:OUTPUT_REPLAY", "wrong_values:PHASE_SNIFF", "wrong_values:DISTRIBUTION_FIT", "wrong_values"]
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
            with torch.cuda.stream(side):
                torch.softmax(inside, -1)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = torch.softmax(inside, -1)
            self.graphs[x.shape] = (graph, inside, out)
        graph, _, out = self.graphs[x.shape]
        graph.replay()
        return out
