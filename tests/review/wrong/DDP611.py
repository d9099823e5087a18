# DistributedDataParallel takes one device: several are refused. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
model = DDP(net, device_ids=[0, 1])
# ---
model = nn.parallel.DistributedDataParallel(net, list(range(torch.cuda.device_count())))
# ---
gpus = [0, 1, 2, 3]
model = DDP(net.cuda(), device_ids=gpus, output_device=0)
# ---
model = DDP(net, device_ids=range(torch.cuda.device_count()))
