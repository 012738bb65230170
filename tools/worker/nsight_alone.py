"""One call of a candidate by itself, for Nsight Compute: `python -P -c` with this text, which children cannot read.

Builds the model as the candidate's process did, calls it until it is warm, and once more between the marks of a range.
"""

import importlib
import importlib.util
import sys
from typing import Any

WARM_CALLS = 3


def main(folder: str, saved: str) -> None:
    """Folder: of the candidate's files; `saved`: arguments, weights and inputs."""
    torch: Any = importlib.import_module("torch")
    sys.dont_write_bytecode = True
    sys.path.insert(0, folder)
    kept: dict[str, Any] = torch.load(saved, map_location="cuda", weights_only=False)
    torch.set_float32_matmul_precision("high" if kept["tf32"] else "highest")
    torch.backends.cudnn.allow_tf32 = kept["tf32"]
    spec = importlib.util.spec_from_file_location(kept["module"], f"{folder}/{kept['file']}")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[kept["module"]] = module
    spec.loader.exec_module(module)
    torch.manual_seed(kept["seed"])
    with torch.device("cuda"), torch.no_grad():
        model = module.ModelNew(*kept["positional"], **kept["named"])
    if isinstance(model, torch.nn.Module):
        model = model.to("cuda").train(kept["training"])
        model.load_state_dict(kept["state"], strict=False)
    positional, named = kept["inputs"]
    runtime = torch.cuda.cudart()
    with torch.no_grad():
        for call in range(WARM_CALLS + 1):
            if call == WARM_CALLS:
                runtime.cudaProfilerStart()
            model(*positional, **named)
            torch.cuda.synchronize()
    runtime.cudaProfilerStop()


if __name__ == "__main__":
    main(*sys.argv[1:])
