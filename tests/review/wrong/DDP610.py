# No rank says which device is its own, so all of them work on GPU 0. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
dist.init_process_group(backend='nccl')
model = DDP(net.cuda())
# ---
def main():
    dist.init_process_group('nccl')
    net = build().to('cuda')
    model = DDP(net)
main()
# ---
torch.distributed.init_process_group(backend='nccl', init_method='env://')
model = nn.parallel.DistributedDataParallel(net.to(device='cuda'))
# ---
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
dist.init_process_group("nccl")
model = DDP(net.to(device))
