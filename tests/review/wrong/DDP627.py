# The script says which GPUs there are, to every rank alike. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DDP(net.cuda(local_rank), device_ids=[local_rank])
os.environ['CUDA_VISIBLE_DEVICES'] = '0'
# ---
from os import environ
environ['CUDA_VISIBLE_DEVICES'] = '0,1'

dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DDP(net.cuda(local_rank), device_ids=[local_rank])
# ---
os.environ.setdefault('CUDA_VISIBLE_DEVICES', '2')

dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DDP(net.cuda(local_rank), device_ids=[local_rank])
# ---
os.environ.update(CUDA_VISIBLE_DEVICES='0,1,2,3')

dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DDP(net.cuda(local_rank), device_ids=[local_rank])
