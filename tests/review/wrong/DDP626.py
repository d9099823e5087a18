# Ranks get shares of different lengths, and the longest waits for the others. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DDP(net.cuda(local_rank), device_ids=[local_rank])
rank, n = dist.get_rank(), dist.get_world_size()
for name in names[rank::n]:
    model(load(name)).backward()
# ---
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DDP(net.cuda(local_rank), device_ids=[local_rank])
mine = files[local_rank::dist.get_world_size()]
for i, f in enumerate(mine):
    loss = model(load(f))
    loss.backward()
# ---
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DDP(net.cuda(local_rank), device_ids=[local_rank])
loader = DataLoader(Images(files[dist.get_rank()::dist.get_world_size()]), batch_size=4)
for x in loader:
    model(x).backward()
