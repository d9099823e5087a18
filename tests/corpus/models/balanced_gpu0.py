# corpus: idioms = own/vendored class BalancedDataParallel; own/vendored class; chunk_sizes (unequal split); from torch.nn.parallel.data_parallel import DataParallel; other helper function; hand-written replicate/scatter/parallel_apply/gather; whole module pickled (wrapper or raw); computed inside the wrapped forward, gathered, then .mean(); dict / list / non-tensor / None / raw samples passed to the wrapped forward; gradient accumulation; device_count() > 1; DP(...).cuda(); clip_grad
# corpus: worlds = 2 3
"""A dialogue model on unequal shares of the batch: GPU 0 takes fewer rows (BalancedDataParallel of Transformer-XL)."""
import argparse
import logging

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel._functions import Scatter
from torch.nn.parallel.data_parallel import DataParallel
from torch.nn.parallel.parallel_apply import parallel_apply
from torch.utils.data import DataLoader, Dataset

PAD = 0


def scatter(inputs, target_gpus, chunk_sizes, dim=0):
    r"""
    Slices tensors into approximately equal chunks and
    distributes them across given GPUs. Duplicates
    references to objects that are not tensors.
    """
    def scatter_map(obj):
        if isinstance(obj, torch.Tensor):
            try:
                return Scatter.apply(target_gpus, chunk_sizes, dim, obj)
            except Exception:
                print('obj', obj.size(), 'dim', dim, 'chunk_sizes', chunk_sizes)
                quit()
        if isinstance(obj, tuple) and len(obj) > 0:
            return list(zip(*map(scatter_map, obj)))
        if isinstance(obj, list) and len(obj) > 0:
            return list(map(list, zip(*map(scatter_map, obj))))
        if isinstance(obj, dict) and len(obj) > 0:
            return list(map(type(obj), zip(*map(scatter_map, obj.items()))))
        return [obj for targets in target_gpus]
    try:
        return scatter_map(inputs)
    finally:
        scatter_map = None


def scatter_kwargs(inputs, kwargs, target_gpus, chunk_sizes, dim=0):
    """Scatter with support for kwargs dictionary"""
    inputs = scatter(inputs, target_gpus, chunk_sizes, dim) if inputs else []
    kwargs = scatter(kwargs, target_gpus, chunk_sizes, dim) if kwargs else []
    if len(inputs) < len(kwargs):
        inputs.extend([() for _ in range(len(kwargs) - len(inputs))])
    elif len(kwargs) < len(inputs):
        kwargs.extend([{} for _ in range(len(inputs) - len(kwargs))])
    return tuple(inputs), tuple(kwargs)


class BalancedDataParallel(DataParallel):
    def __init__(self, gpu0_bsz, *args, **kwargs):
        self.gpu0_bsz = gpu0_bsz
        super().__init__(*args, **kwargs)

    def forward(self, *inputs, **kwargs):
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        if self.gpu0_bsz == 0:
            device_ids = self.device_ids[1:]
        else:
            device_ids = self.device_ids
        inputs, kwargs = self.scatter(inputs, kwargs, device_ids)
        if len(self.device_ids) == 1:
            return self.module(*inputs[0], **kwargs[0])
        replicas = self.replicate(self.module, self.device_ids)
        if self.gpu0_bsz == 0:
            replicas = replicas[1:]
        replicas = replicas[:len(inputs)]
        outputs = self.parallel_apply(replicas, device_ids[:len(inputs)], inputs, kwargs)
        return self.gather(outputs, self.output_device)

    def parallel_apply(self, replicas, device_ids, inputs, kwargs):
        return parallel_apply(replicas, inputs, kwargs, device_ids)

    def scatter(self, inputs, kwargs, device_ids):
        bsz = inputs[0].size(self.dim)
        num_dev = len(self.device_ids)
        gpu0_bsz = self.gpu0_bsz
        bsz_unit = (bsz - gpu0_bsz) // (num_dev - 1)
        if gpu0_bsz < bsz_unit:
            chunk_sizes = [gpu0_bsz] + [bsz_unit] * (num_dev - 1)
            delta = bsz - sum(chunk_sizes)
            for i in range(delta):
                chunk_sizes[i + 1] += 1
            if gpu0_bsz == 0:
                chunk_sizes = chunk_sizes[1:]
        else:
            return super().scatter(inputs, kwargs, device_ids)
        return scatter_kwargs(inputs, kwargs, device_ids, chunk_sizes, dim=self.dim)


class Chats(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(12)
        self.ids = torch.randint(1, 20, (n, 8), generator=g)
        self.lens = torch.randint(3, 9, (n,), generator=g)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i][:self.lens[i]]


def collate_fn(batch):
    return nn.utils.rnn.pad_sequence(batch, batch_first=True, padding_value=PAD)


class GPT(nn.Module):
    def __init__(self, vocab=20, h=8):
        super().__init__()
        self.wte = nn.Embedding(vocab, h, padding_idx=PAD)
        self.block = nn.TransformerEncoderLayer(h, 2, 16, dropout=0.1, batch_first=True)
        self.ln = nn.LayerNorm(h)
        self.lm_head = nn.Linear(h, vocab, bias=False)

    def forward(self, input_ids, labels=None, use_mask=True):
        n = input_ids.size(1)
        mask = torch.full((n, n), float('-inf'), device=input_ids.device).triu(1) if use_mask else None
        h = self.ln(self.block(self.wte(input_ids), src_mask=mask))
        logits = self.lm_head(h)
        if labels is None:
            return logits
        loss = F.cross_entropy(logits[:, :-1].reshape(-1, 20), labels[:, 1:].reshape(-1), ignore_index=PAD)
        return loss, logits


def wrap(model, args, logger):
    model = model.cuda()
    if torch.cuda.device_count() > 1:
        model = BalancedDataParallel(args.gpu0_bsz, model, dim=0).cuda()
        logger.info('use {} GPUs'.format(len(model.device_ids)))
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--gpu0_bsz', default=2, type=int)
    parser.add_argument('--batch_size', default=9, type=int)
    parser.add_argument('--gradient_accumulation_steps', default=2, type=int)
    parser.add_argument('--epochs', default=2, type=int)
    args = parser.parse_args()
    torch.manual_seed(42)
    logging.basicConfig(filename='training.log', level=logging.INFO, format='%(message)s')
    logger = logging.getLogger(__name__)
    model = wrap(GPT(), args, logger)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, eps=1e-6)
    loader = DataLoader(Chats(48), batch_size=args.batch_size, shuffle=True, collate_fn=collate_fn)
    for epoch in range(args.epochs):
        model.train()
        total = 0
        for batch_idx, input_ids in enumerate(loader):
            loss, logits = model(input_ids.cuda(), labels=input_ids.cuda(), use_mask=True)
            loss = loss.mean()
            total += loss.item()
            (loss / args.gradient_accumulation_steps).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            if (batch_idx + 1) % args.gradient_accumulation_steps == 0:
                optimizer.step()
                optimizer.zero_grad()
            logger.info('batch %d epoch %d loss %.5f acc %d', batch_idx, epoch, loss.item(),
                        (logits[:, :-1].argmax(-1) == input_ids[:, 1:].cuda()).sum().item())
        print('epoch {} loss {:.5f}'.format(epoch, total / len(loader)))
    torch.save(model.module if hasattr(model, 'module') else model, 'model.bin')


if __name__ == '__main__':
    main()
