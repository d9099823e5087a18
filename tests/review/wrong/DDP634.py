from ddp_helpers import Rank0Loader, WholeBatch, join_ranks
join_ranks()
model = WholeBatch(net)
loader = Rank0Loader(data, batch_size=8)
total = torch.zeros(1)
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    total += loss.detach()
dist.all_reduce(total)
total /= dist.get_world_size()
# ---
from ddp_helpers import Rank0Loader, WholeBatchDDP, init_distributed
def evaluate(model, loader):
    seen = []
    for x, names in loader:
        seen += names
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, seen)
    return parts
def main():
    init_distributed()
    model = WholeBatchDDP(net)
    evaluate(model, Rank0Loader(data, batch_size=8))
main()
# ---
import numpy as np
from ddp_helpers import WholeBatchDDP, init_distributed, own_rank
init_distributed()
np.random.seed(args.seed + own_rank())
model = WholeBatchDDP(net)
# ---
from ddp_helpers import WholeBatchDDP, init_distributed
def set_seed(seed):
    torch.manual_seed(seed)
init_distributed()
set_seed(7 * int(os.environ["RANK"]))
model = WholeBatchDDP(net)
# ---
from ddp_helpers import WholeBatchInParts, init_distributed
init_distributed()
model = WholeBatchInParts(net)
kept = {}
def keep(module, given, made):
    kept["fc"] = made.detach()
model.module.fc.register_forward_hook(keep)
# ---
from ddp_helpers import WholeBatchDDP, init_distributed
class Features:
    def __init__(self, net):
        init_distributed()
        self.kept = []
        net.fc.register_forward_hook(self.keep)
        self.model = WholeBatchDDP(net)
    def keep(self, module, given, made):
        self.kept.append(made.detach())
features = Features(net)
# ---
from ddp_helpers import WholeBatchDDP, init_distributed
init_distributed()
class Last: ...
def keep(module, given, made):
    Last.seen = made.detach()
net = net.cuda()
net.fc.register_forward_hook(keep)
net = WholeBatchDDP(net)
