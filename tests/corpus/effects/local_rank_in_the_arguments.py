# corpus: idioms = torch.nn.DataParallel; function main/train/run; rebinds the same name; args.local_rank/world_size already; device_count() > 1; batch size multiplied by the number of GPUs in the script; DP(...).to(device); argparse; tqdm/progress bar
# corpus: idioms = own optimizer / wrapper class (Noam, ScheduledOptim, OpenAIAdam, BertAdam, BinOp, AWP); computed inside the wrapped forward, gathered, then .mean(); gradient accumulation; sampler=; len(loader) used as divisor / schedule (breaks when the loader shrinks); hasattr(model,'module')
# corpus: worlds = 2 3 4
"""Fine-tuning a tiny reader in the form of the BERT scripts: --local_rank, per_gpu_batch_size, t_total."""
import argparse
import json
import logging
import os
import random
import sys

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from tqdm import tqdm, trange

logging.basicConfig(format='%(levelname)s - %(name)s - %(message)s', level=logging.INFO, stream=sys.stdout)
logger = logging.getLogger('reader')


def set_seed(args):
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    if args.n_gpu > 0:
        torch.cuda.manual_seed_all(args.seed)


class Reader(nn.Module):
    def __init__(self, vocab=40, dim=12):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layer = nn.TransformerEncoderLayer(dim, 2, 16, dropout=0.1, batch_first=True)
        self.span = nn.Linear(dim, 2)

    def forward(self, ids, mask, start=None, end=None):
        hidden = self.layer(self.embed(ids), src_key_padding_mask=mask == 0)
        s, e = self.span(hidden).split(1, dim=-1)
        s, e = s.squeeze(-1), e.squeeze(-1)
        if start is not None:
            return (nn.functional.cross_entropy(s, start) + nn.functional.cross_entropy(e, end)) / 2
        return s, e


class WarmupLinear:
    def __init__(self, optimizer, base, warmup, total):
        self.optimizer, self.base, self.warmup, self.total, self.n = optimizer, base, warmup, total, 0

    def step(self):
        self.n += 1
        x = self.n / self.total
        for g in self.optimizer.param_groups:
            g['lr'] = self.base * (x / self.warmup if x < self.warmup else max(1.0 - x, 0))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--output_dir', default='out')
    parser.add_argument('--per_gpu_train_batch_size', default=3, type=int)
    parser.add_argument('--gradient_accumulation_steps', type=int, default=2)
    parser.add_argument('--num_train_epochs', default=3.0, type=float)
    parser.add_argument('--seed', type=int, default=42)
    parser.add_argument('--local_rank', type=int, default=-1)
    parser.add_argument('--no_cuda', action='store_true')
    args = parser.parse_args()
    if args.local_rank == -1 or args.no_cuda:
        device = torch.device('cuda' if torch.cuda.is_available() and not args.no_cuda else 'cpu')
        args.n_gpu = torch.cuda.device_count()
    else:
        torch.cuda.set_device(args.local_rank)
        device = torch.device('cuda', args.local_rank)
        torch.distributed.init_process_group(backend='nccl')
        args.n_gpu = 1
    logger.warning('device %s, n_gpu %d, distributed %s', device.type, args.n_gpu, bool(args.local_rank != -1))
    if os.path.exists(args.output_dir) and os.listdir(args.output_dir):
        raise ValueError('Output directory already exists and is not empty.')
    os.makedirs(args.output_dir, exist_ok=True)
    set_seed(args)
    ids = torch.randint(1, 40, (50, 9))
    mask = (torch.arange(9)[None] < torch.randint(5, 10, (50, 1))).long()
    dataset = TensorDataset(ids, mask, ids[:, :5].argmax(1), ids[:, :5].argmin(1))
    args.train_batch_size = args.per_gpu_train_batch_size * max(1, args.n_gpu)
    sampler = RandomSampler(dataset) if args.local_rank == -1 else DistributedSampler(dataset)
    loader = DataLoader(dataset, sampler=sampler, batch_size=args.train_batch_size)
    model = Reader().to(device)
    if args.n_gpu > 1:
        model = torch.nn.DataParallel(model)
    if args.local_rank != -1:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[args.local_rank], output_device=args.local_rank)
    no_decay = ['bias', 'norm']
    groups = [
        {'params': [p for n, p in model.named_parameters() if not any(nd in n for nd in no_decay)], 'weight_decay': 0.01},
        {'params': [p for n, p in model.named_parameters() if any(nd in n for nd in no_decay)], 'weight_decay': 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=5e-3)
    t_total = len(loader) // args.gradient_accumulation_steps * args.num_train_epochs
    scheduler = WarmupLinear(optimizer, 5e-3, 0.2, t_total)
    logger.info('  Num examples = %d, total batch = %d, steps = %d', len(dataset), args.train_batch_size * args.gradient_accumulation_steps * (
        torch.distributed.get_world_size() if args.local_rank != -1 else 1), t_total)
    global_step, tr_loss = 0, 0.0
    for _ in trange(int(args.num_train_epochs), desc='Epoch', disable=args.local_rank not in [-1, 0]):
        for step, batch in enumerate(tqdm(loader, desc='Iteration')):
            model.train()
            batch = tuple(t.to(device) for t in batch)
            loss = model(batch[0], batch[1], start=batch[2], end=batch[3])
            if args.n_gpu > 1:
                loss = loss.mean()
            if args.gradient_accumulation_steps > 1:
                loss = loss / args.gradient_accumulation_steps
            loss.backward()
            tr_loss += loss.item()
            if (step + 1) % args.gradient_accumulation_steps == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scheduler.step()
                optimizer.step()
                model.zero_grad()
                global_step += 1
                if args.local_rank in [-1, 0] and global_step % 2 == 0:
                    logger.info('step %d loss %.5f lr %.6f', global_step, tr_loss / global_step, optimizer.param_groups[0]['lr'])
    if args.local_rank in [-1, 0]:
        model_to_save = model.module if hasattr(model, 'module') else model
        torch.save(model_to_save.state_dict(), os.path.join(args.output_dir, 'pytorch_model.bin'))
        with open(os.path.join(args.output_dir, 'args.json'), 'w') as f:
            json.dump(vars(args), f)


if __name__ == '__main__':
    main()
