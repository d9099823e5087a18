# The argument promises a total batch size, and each rank takes all of it. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
import argparse
p = argparse.ArgumentParser()
p.add_argument('--batch-size', help='global batch size')
args = p.parse_args()
loader = DataLoader(data, args.batch_size, sampler=DistributedSampler(data))
# ---
import argparse
p = argparse.ArgumentParser()
p.add_argument('-b', '--bs', type=int, help='batch size across all GPUs')
args = p.parse_args()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=args.bs, sampler=sampler)
# ---
from argparse import ArgumentParser
p = ArgumentParser()
p.add_argument('--n', dest='batch', help='the overall batch')
args = p.parse_args()
loader = torch.utils.data.DataLoader(data, batch_size=args.batch, sampler=DistributedSampler(data))
