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
