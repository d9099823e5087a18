# corpus: idioms = nn.DataParallel; function main/train/run; DP(...).cuda(); torch.manual_seed; np.random/random seed; torch.rand* inside the train step; training loop without torch DataLoader (own iterator, queue, replay buffer); __name__ guard
# corpus: worlds = 2 3
"""A GPU that is seeded by itself, again at the end of every epoch; a choice of rows that leaves the host's stream alone."""
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def seed_host(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def seed_gpu(seed):
    if torch.cuda.is_available():
        torch.cuda.manual_seed(seed)


class Tagger(nn.Module):
    def __init__(self, words, tags):
        super().__init__()
        self.embed = nn.Embedding(words, 10)
        self.rnn = nn.GRU(10, 8, batch_first=True)
        self.out = nn.Linear(8, tags)

    def forward(self, x):
        hidden, _ = self.rnn(F.dropout(self.embed(x), 0.3, self.training))
        return self.out(F.dropout(hidden, 0.5, self.training))


def batches(words, tags, size):
    order = np.random.permutation(len(words))
    for start in range(0, len(order), size):
        rows = order[start:start + size]
        yield torch.from_numpy(words[rows]), torch.from_numpy(tags[rows])


def same_rows(count):
    state = torch.get_rng_state()
    torch.manual_seed(0)  # GPUs stay seeded
    rows = torch.randperm(count)
    torch.set_rng_state(state)
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gpu-seed", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()

    seed_gpu(args.gpu_seed)
    seed_host(args.seed)
    words = np.random.randint(0, 30, (40, 6))
    tags = words % 4
    model = nn.DataParallel(Tagger(30, 4)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

    for epoch in range(args.epochs):
        total = 0.
        for x, y in batches(words, tags, 12):
            x, y = x.cuda(), y.cuda()
            if epoch:  # label noise, drawn on the GPU
                noisy = torch.rand(y.shape, device=y.device) < 0.1
                y = torch.where(noisy, torch.zeros_like(y), y)
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        model.eval()
        rows = same_rows(len(words))[:8].numpy()
        right = (model(torch.from_numpy(words[rows]).cuda()).argmax(-1).cpu().numpy() == tags[rows]).mean()
        model.train()
        print("epoch %d loss %.4f right %.4f" % (epoch, total, right))
        seed_gpu(args.gpu_seed)  # every epoch drops the same units


if __name__ == "__main__":
    main()
