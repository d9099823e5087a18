# The model trains past its wrapper: gradients are not summed over the ranks. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
# wrapped
for x, y in batches:
    loss = criterion(model.module(x), y)
    loss.backward()
# ---
# wrapped
for x in batches:
    out = model.module.encode(x)
    loss = out.mean()
    loss.backward()
# ---
class T:
    def __init__(self, net):
        self.model = DDP(net)
    def step(self, x):
        loss = self.model.module.loss(x)
        loss.backward()
# ---
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
net = nn.Linear(4, 1).cuda()
net = DDP(net, device_ids=[local_rank])
for x, y in batches:
    loss = criterion(net.module(x), y)
    loss.backward()
# ---
net = net.cuda()
ddp_net = DDP(net)
for x in batches:
    loss = criterion(net(x))
    loss.backward()
# ---
class T:
    def __init__(self, net):
        self.net = net
        self.model = DDP(self.net.cuda())
    def fit(self, batches):
        for x in batches:
            self.net.loss(x).backward()
