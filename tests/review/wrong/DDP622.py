# `--local_rank` is an argument, which torchrun does not pass. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
import argparse
p = argparse.ArgumentParser()
p.add_argument('--local_rank', type=int)
args = p.parse_args()
dist.init_process_group('nccl')
torch.cuda.set_device(args.local_rank)
# ---
import argparse
p = argparse.ArgumentParser()
p.add_argument('--local_rank', default=0, type=int)
args = p.parse_args()
dist.init_process_group('nccl')
net.cuda(args.local_rank)
# ---
import argparse
p = argparse.ArgumentParser()
p.add_argument('-l', '--local_rank', default=-1)
args = p.parse_args()
dist.init_process_group('nccl')
model = DDP(net, device_ids=[args.local_rank])
