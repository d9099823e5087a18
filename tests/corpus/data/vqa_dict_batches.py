# corpus: idioms = collate_fn; dict / list / non-tensor / None / raw samples passed to the wrapped forward; tensors left on the CPU, DP.scatter does the copy; loader or dataset rebuilt during training; mean over a data-dependent count (ignore_index, mask, num_pos, padding) - replica level
# corpus: worlds = 2 3
"""Visual question answering: batches are dicts with lists of questions, a None, and boxes in lists."""
import random

import torch
import torch.nn as nn
from torch.nn.parallel import DataParallel
from torch.utils.data import Dataset, DataLoader

random.seed(3)
torch.manual_seed(3)
WORDS = ['what', 'is', 'left', 'right', 'red', 'cat', 'dog', 'of', 'the', 'box']
ANSWERS = ['yes', 'no', 'cat', 'dog']


class Questions(Dataset):
    def __init__(self, split, n):
        self.split = split
        self.rows = []
        for i in range(n):
            q = ' '.join(random.choice(WORDS) for _ in range(random.randint(2, 6)))
            self.rows.append({
                'id': '%s_%04d' % (split, i), 'question': q, 'image': torch.randn(3, 6, 6),
                'boxes': torch.rand(random.randint(1, 4), 4), 'answer': (len(q) + q.count('cat')) % 4,
                'caption': None if i % 5 else 'a red box'})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, idx):
        return dict(self.rows[idx])


def collate(rows):
    longest = max(len(r['question'].split()) for r in rows)
    tokens = torch.full((len(rows), longest), -1, dtype=torch.long)
    for i, r in enumerate(rows):
        ids = [WORDS.index(w) for w in r['question'].split()]
        tokens[i, :len(ids)] = torch.tensor(ids)
    boxes = torch.zeros(len(rows), 4, 4)
    for i, r in enumerate(rows):
        boxes[i, :len(r['boxes'])] = r['boxes']
    return {
        'inputs': {'image': torch.stack([r['image'] for r in rows]), 'tokens': tokens, 'boxes': boxes, 'extra': None},
        'answer': torch.tensor([r['answer'] for r in rows]),
        'id': [r['id'] for r in rows],
        'caption': [r['caption'] for r in rows],
    }


class VQA(nn.Module):
    def __init__(self, d=12):
        super().__init__()
        self.conv = nn.Conv2d(3, d, 3, stride=2)
        self.word = nn.Embedding(len(WORDS) + 1, d)
        self.box = nn.Linear(4, d)
        self.cls = nn.Linear(3 * d, len(ANSWERS))

    def forward(self, batch, scale=1.0):
        assert batch['extra'] is None
        img = self.conv(batch['image']).mean((2, 3))
        mask = (batch['tokens'] >= 0).float().unsqueeze(-1)
        txt = (self.word(batch['tokens'] + 1) * mask).sum(1) / mask.sum(1)
        box = self.box(batch['boxes']).amax(1)
        logits = self.cls(torch.cat([img, txt, box], 1)) * scale
        return {'logits': logits, 'attention': [txt.norm(dim=1), box.norm(dim=1)], 'aux': None}


model = DataParallel(VQA().cuda())
optimizer = torch.optim.Adamax(model.parameters(), lr=1e-2)
criterion = nn.CrossEntropyLoss()
hard = None
train_set = Questions('train', 26)
for epoch in range(3):
    # the hard questions of the last epoch come once more
    if hard:
        train_set.rows += [r for r in train_set.rows if r['id'] in hard]
    loader = DataLoader(train_set, batch_size=8, shuffle=True, collate_fn=collate)
    hard = []
    for it, batch in enumerate(loader):
        out = model(batch["inputs"], 0.5)
        target = batch['answer'].cuda()
        loss = criterion(out['logits'], target) + 1e-3 * out['attention'][0].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        wrong = out['logits'].max(1)[1].ne(target).tolist()
        hard += [name for name, w in zip(batch['id'], wrong) if w]
        told = sum(c is not None for c in batch['caption'])
        print('%d/%d: %s ... %d captions, loss %.4f' % (epoch, it, batch['id'][0], told, loss.item()))
    print('epoch', epoch, 'of', len(loader), 'batches, wrong:', len(hard), 'aux', out['aux'])
