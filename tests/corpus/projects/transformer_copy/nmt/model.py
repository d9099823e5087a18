import torch.nn as nn


class EncoderDecoder(nn.Module):
    def __init__(self, vocab, d_model):
        super().__init__()
        self.embed = nn.Embedding(vocab, d_model)
        self.attention = nn.MultiheadAttention(d_model, 2, batch_first=True)
        self.generator = nn.Linear(d_model, vocab)

    def forward(self, src, mask):
        x = self.embed(src)
        x, _ = self.attention(x, x, x, key_padding_mask=~mask.squeeze(1))
        return self.generator(x).log_softmax(-1)


def make_model(vocab, d_model):
    model = EncoderDecoder(vocab, d_model)
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.xavier_uniform_(p)
    return model
