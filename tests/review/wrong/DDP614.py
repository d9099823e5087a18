# The model trains past its wrapper: gradients are not summed over the ranks. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
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
# ---
# wrapped
raw = model.module
for x in batches:
    raw(x).mean().backward()
# ---
if distributed:
    model = DDP(model)
raw = model.module if distributed else model
for x in batches:
    logits, loss = raw(x)
    loss.backward()
# ---
def train(net, batches):
    for x in batches:
        net(x).mean().backward()
def main(net):
    model = DDP(net)
    train(net, batches)
main(net)
# ---
class T:
    def __init__(self, net, batches):
        self.net, self.batches = net, batches
    def fit(self):
        for x in self.batches:
            self.net(x).mean().backward()
net = net.cuda()
model = DDP(net)
T(net, batches).fit()
# ---
class Diffusion:
    def loss(self, model, x):
        return model(x).mean()
diffusion = Diffusion()
# wrapped
for x in batches:
    loss = diffusion.loss(model.module, x)
    loss.backward()
# ---
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = net.cuda()
model_without_ddp = model
model = DDP(model)
for x, y in loader:
    loss = criterion(model_without_ddp(x), y)
    loss.backward()
# ---
def train(net, loader):
    for x, y in loader:
        loss = criterion(net(x), y)
        loss.backward()
def main(args):
    dist.init_process_group("nccl")
    model = build()
    model.cuda()
    model_without_ddp = model
    model = DDP(model, device_ids=[args.gpu])
    train(model_without_ddp, loader)
# ---
model = build().cuda()
model_without_ddp = model
if args.distributed:
    model = DDP(model, device_ids=[args.gpu])
for x in loader:
    model_without_ddp(x).mean().backward()
# ---
if distributed:
    model = DDP(net)
else:
    model = net
for x in batches:
    model.module(x).mean().backward()
# ---
def train(bare, batches):
    for x in batches:
        bare(x).mean().backward()
wrapper = DDP(net)
train(batches=batches, bare=net)
