"""One rank of a converted script on the processor, for old_torch.py: any Python from 3.8, any torch from 1.13.

`python old_torch_rank.py SCRIPT OUT`: runs it as __main__, then writes what its optimizers have learned to OUT.
"""

import json
import os
import runpy
import sys

import torch


def main(script: str, out: str) -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *args, **kwargs: self  # type: ignore[assignment,method-assign]
    torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]
    from_numpy, add_group, groups = torch.from_numpy, torch.optim.Optimizer.add_param_group, []

    def double_from_numpy(array):  # type: ignore[no-untyped-def]
        return from_numpy(array.astype("float64" if array.dtype == "float32" else array.dtype))

    def add_and_remember(self, group):  # type: ignore[no-untyped-def]
        add_group(self, group)
        groups.append(self.param_groups[-1])

    torch.from_numpy, torch.optim.Optimizer.add_param_group = double_from_numpy, add_and_remember  # type: ignore[method-assign]
    sys.argv, sys.path[0] = [script], os.path.dirname(script)
    runpy.run_path(script, run_name="__main__")
    with open(out, "w") as file:
        json.dump([each.flatten().tolist() for group in groups for each in group["params"]], file)


if __name__ == "__main__":
    main(*map(os.path.abspath, sys.argv[1:]))
