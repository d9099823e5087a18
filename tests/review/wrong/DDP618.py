# SyncBatchNorm is put into the model after it was wrapped. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DDP(net.cuda(local_rank), device_ids=[local_rank])
model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
# ---
model = nn.SyncBatchNorm.convert_sync_batchnorm(DDP(net))
# ---
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DDP(net.cuda(local_rank), device_ids=[local_rank])
from torch.nn import SyncBatchNorm as Sync
model = Sync.convert_sync_batchnorm(model).cuda()
