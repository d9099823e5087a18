"""A recurrent language model over 16,000 words: its logits weigh more than everything else."""

import torch.nn as nn

WORDS = 16000


class LanguageModel(nn.Module):
    def __init__(self, words=WORDS, width=64):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.rnn = nn.LSTM(width, width, batch_first=True)
        self.decoder = nn.Linear(width, words)

    def forward(self, tokens):
        out, _ = self.rnn(self.embedding(tokens))
        return self.decoder(out)
