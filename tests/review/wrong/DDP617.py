# One rank alone loads weights into a model that is wrapped already. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DDP(net.cuda(local_rank), device_ids=[local_rank])
if local_rank == 0:
    model.load_state_dict(torch.load('a.pt', map_location='cpu'))
# ---
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DDP(net.cuda(local_rank), device_ids=[local_rank])
is_main = dist.get_rank() == 0
if is_main:
    model.module.load_state_dict(state)
# ---
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DDP(net.cuda(local_rank), device_ids=[local_rank])
if os.path.exists('a.pt') and local_rank == 0:
    model.load_state_dict(torch.load('a.pt', map_location='cpu'))
