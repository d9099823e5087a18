import torch
import torch.nn as nn
from ddp_helpers import gather_on_ranks, init_distributed, parallel_apply_on_ranks, replicate_on_ranks, scatter_on_ranks


class DataParallelModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.block1 = nn.Linear(10, 20)

    def forward(self, x):
        x = self.block1(x)
        return x


def data_parallel(module, input, device_ids, output_device=None):
    if not device_ids:
        return module(input)

    if output_device is None:
        output_device = device_ids[0]

    replicas = replicate_on_ranks(module, device_ids)
    print(f"replicas:{replicas}")

    inputs = scatter_on_ranks(input, device_ids)
    print(f"inputs:{type(inputs)}")
    for i in range(len(inputs)):
        print(f"input {i}:{inputs[i].shape}")

    replicas = replicas[:len(inputs)]
    outputs = parallel_apply_on_ranks(replicas, inputs)
    print(f"outputs:{type(outputs)}")
    for i in range(len(outputs)):
        print(f"output {i}:{outputs[i].shape}")

    result = gather_on_ranks(outputs, output_device)
    return result


init_distributed()

model = DataParallelModel()
x = torch.rand(16, 10)
result = data_parallel(model.cuda(), x.cuda(), [0, 1])
print(f"result: {result.shape}")
