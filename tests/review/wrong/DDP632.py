# What the wrapper of a converted script refuses. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
from ddp_helpers import WholeBatchDDP, init_distributed
def train(loader, model, criterion):
    for x, y in loader:
        first, second = model(x[0]), model(x[1])
        loss = criterion(first, second)
        loss.backward()
init_distributed()
net = WholeBatchDDP(net)
train(loader, net, nn.MSELoss())
# ---
from ddp_helpers import WholeBatchDDP, init_distributed
init_distributed()
model = WholeBatchDDP(net)
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward(create_graph=True)
# ---
from ddp_helpers import WholeBatchDDP, init_distributed
def train(loader, model):
    for x, y in loader:
        out = model(x)
        out.mean().backward(retain_graph=True)
        (2 * out.mean()).backward()
init_distributed()
model = WholeBatchDDP(net)
train(loader, model)
# ---
import copy
from ddp_helpers import WholeBatchDDP, init_distributed
init_distributed()
model = WholeBatchDDP(net).cuda()
best = copy.deepcopy(model)
# ---
from ddp_helpers import WholeBatchDDP, init_distributed, save_on_rank0
class Trainer:
    def __init__(self):
        self.model = WholeBatchDDP(net)
    def save(self, path):
        save_on_rank0({"epoch": 1, "model": self.model}, path)
init_distributed()
Trainer().save("model.pt")
# ---
from ddp_helpers import WholeBatchDDP, init_distributed
init_distributed()
model = WholeBatchDDP(net)
for name, p in model.named_parameters():
    if "head" not in name:
        p.requires_grad_(False)
# ---
from ddp_helpers import WholeBatchDDP, init_distributed
init_distributed()
model = WholeBatchDDP(net)
model.module.fc.register_full_backward_hook(show)
for p in model.parameters():
    p.register_hook(lambda grad: grad.clamp(-1, 1))
