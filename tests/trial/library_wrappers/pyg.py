"""Graphs in lists: two forwards before a backward, outputs in dicts, and a class over the library's."""

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataListLoader
from torch_geometric.nn import DataParallel, GCNConv, global_mean_pool


class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = GCNConv(5, width)
        self.bn = torch.nn.BatchNorm1d(width)
        self.conv2 = GCNConv(width, 3)
        self.unused = torch.nn.Linear(2, 2)

    def forward(self, data):
        x = F.dropout(self.bn(self.conv1(data.x, data.edge_index)).relu(), 0.3, self.training)
        x = self.conv2(x, data.edge_index)
        pooled = global_mean_pool(x, data.batch)
        return {"log": F.log_softmax(pooled, 1), "parts": (x, pooled.sum()), "follow": data.x_batch}


class Whole(DataParallel):
    """A class of the project over the library's: outputs are not joined."""

    def gather(self, outputs, output_device):
        return outputs


def graphs(n):
    g = torch.Generator().manual_seed(1)
    for _ in range(n):
        k = int(torch.randint(3, 9, (1,), generator=g))
        yield Data(
            x=torch.randn(k, 5, generator=g),
            edge_index=torch.randint(0, k, (2, 2 * k), generator=g),
            y=torch.randint(0, 3, (1,), generator=g),
        )


torch.manual_seed(0)
loader = DataListLoader(list(graphs(17)), batch_size=8, shuffle=True, num_workers=2)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
model = DataParallel(Net(8), follow_batch=["x"]).to(device)
other = Whole(Net(4).to(device), follow_batch=["x"])
optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], 0.1)
for epoch in range(2):
    model.train()
    for data_list in loader:
        optimizer.zero_grad()
        first, second = model(data_list), model(data_list[::-1])
        outputs = other(data_list)
        y = torch.cat([data.y for data in data_list]).to(device)
        loss = F.nll_loss(first["log"], y) + first["parts"][1].mean() ** 2 + second["log"].pow(2).mean()
        for each in outputs:
            loss = loss + F.nll_loss(each["log"].to(device), y[: len(each["log"])]) / len(outputs)
        loss.backward()
        optimizer.step()
        print(len(outputs), first["follow"].tolist(), len(first["parts"][1]))
    print(epoch, loss.item())
    model.eval()
    with torch.no_grad():
        print(
            model([*graphs(3)])["log"].argmax(1).tolist(),
            isinstance(other, torch.nn.DataParallel),
            type(model).__name__,
            len(model.device_ids),
        )
torch.save(model.state_dict(), "net.pt")
