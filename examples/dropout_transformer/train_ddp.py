"""A transformer encoder that finds the most frequent token of a padded sequence; dropout everywhere."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
from ddp_helpers import WholeBatchDDP, init_distributed

init_distributed()

torch.manual_seed(7)

VOCABULARY = 12
PADDING = 0
LENGTH = 16
EPOCHS = 4


def make_data(rows):
    lengths = torch.randint(6, LENGTH + 1, (rows,))
    tokens = torch.randint(1, VOCABULARY, (rows, LENGTH))
    tokens[torch.arange(LENGTH) >= lengths.unsqueeze(1)] = PADDING
    counts = nn.functional.one_hot(tokens, VOCABULARY)[:, :, 1:].sum(1)
    return tokens, counts.argmax(1)


class Classifier(nn.Module):
    def __init__(self, width=32, heads=4, layers=2, dropout=0.2):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width, padding_idx=PADDING)
        self.position = nn.Parameter(torch.randn(LENGTH, width) * 0.02)
        self.dropout = nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY - 1)

    def forward(self, tokens):
        padding = tokens == PADDING
        x = self.dropout(self.embedding(tokens) + self.position)
        x = self.encoder(x, src_key_padding_mask=padding)
        x = x.masked_fill(padding.unsqueeze(-1), 0.0)
        return self.head(x.sum(1) / (~padding).sum(1, keepdim=True))


train_loader = DataLoader(TensorDataset(*make_data(198)), batch_size=32, shuffle=True)
valid_loader = DataLoader(TensorDataset(*make_data(60)), batch_size=32)

model = WholeBatchDDP(Classifier()).cuda()
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
total_steps = EPOCHS * len(train_loader)
warmup = total_steps // 5
scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda step: min((step + 1) / warmup, (total_steps - step) / (total_steps - warmup))
)

step = 0
for epoch in range(EPOCHS):
    model.train()
    for tokens, target in train_loader:
        tokens, target = tokens.cuda(), target.cuda()
        logits = model(tokens)
        loss = criterion(logits, target)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        step += 1
        if step % 7 == 0:
            print(f"step {step:3d}  loss {loss.item():.4f}  norm {norm:.3f}  lr {scheduler.get_last_lr()[0]:.2e}")

    model.eval()
    correct = 0
    with torch.no_grad():
        for tokens, target in valid_loader:
            tokens, target = tokens.cuda(), target.cuda()
            logits = model(tokens)
            correct += (logits.argmax(1) == target).sum().item()
    print(f"epoch {epoch}: {correct} of {len(valid_loader.dataset)} right")
