"""Tag each token of padded sentences; the loss is a mean over the tokens that are not padding."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from ddp_helpers import WholeBatchDDP, count_ranks, init_distributed, save_on_rank0

init_distributed()

random.seed(5)
torch.manual_seed(5)

WORDS, TAGS = 30, 6


def make_sentences(count):
    sentences = []
    for _ in range(count):
        words = torch.tensor([random.randrange(1, WORDS) for _ in range(random.randint(2, 20))])
        tags = (words // 2 + (torch.roll(words, 1) > 20)) % TAGS
        sentences.append((words, tags))
    return sentences


def collate(batch):
    words = pad_sequence([words for words, _ in batch], batch_first=True)
    tags = pad_sequence([tags for _, tags in batch], batch_first=True)
    return words, tags, (words != 0).float()


class Tagger(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width, padding_idx=0)
        self.rnn = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, TAGS)

    def forward(self, words):
        self.rnn.flatten_parameters()
        hidden, _ = self.rnn(self.embedding(words))
        return self.out(hidden)


def masked_mean_loss(scores, tags, mask):
    loss = F.cross_entropy(scores.transpose(1, 2), tags, reduction="none")  # (rows, words)
    return (loss * mask).sum() / mask.sum()


loader = DataLoader(make_sentences(102), batch_size=24, shuffle=True, collate_fn=collate)
held_out = DataLoader(make_sentences(30), batch_size=24, collate_fn=collate)
model = Tagger().cuda()
if count_ranks() > 1:
    model = WholeBatchDDP(model)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)

best = float("inf")
bad_epochs = 0
for epoch in range(5):
    model.train()
    for i, (words, tags, mask) in enumerate(loader):
        words, tags, mask = words.cuda(), tags.cuda(), mask.cuda()
        loss = masked_mean_loss(model(words), tags, mask)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.1)
        optimizer.step()

    model.eval()
    with torch.no_grad():
        valid = 0.0
        for words, tags, mask in held_out:
            valid += masked_mean_loss(model(words.cuda()), tags.cuda(), mask.cuda()).item() / len(held_out)
    print("epoch %d | train %.4f | valid %.4f" % (epoch, loss.item(), valid))
    if valid < best:
        best, bad_epochs = valid, 0
        save_on_rank0(model.state_dict(), "tagger.pt")
    else:
        bad_epochs += 1
        if bad_epochs == 2:
            print("stop early")
            break
