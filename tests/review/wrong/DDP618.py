# SyncBatchNorm is put into the model after it was wrapped. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
# wrapped
model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
# ---
model = nn.SyncBatchNorm.convert_sync_batchnorm(DDP(net))
# ---
# wrapped
from torch.nn import SyncBatchNorm as Sync
model = Sync.convert_sync_batchnorm(model).cuda()
# ---
# wrapped
model.module.fc = nn.Linear(512, 10).cuda()
# ---
net = resnet()
model = DDP(net)
net.heads.last = torch.nn.modules.Linear(512, 10)
# ---
net.stem.requires_grad_(False)
model = DDP(net.cuda())
for e in range(9):
    if e == 3:
        for p in model.module.stem.parameters():
            p.requires_grad = True
    train(model)
# ---
for p in net.parameters():
    p.requires_grad = False
net.fc.weight.requires_grad = True
model = DDP(net)
train(model)
net[0].requires_grad_()
# ---
# wrapped
model.module.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(4, 4)).cuda()
# ---
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
def replace(net):
    net.head = Head()
# wrapped
replace(model.module)
