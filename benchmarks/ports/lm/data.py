"""A made-up text, cut into columns that are read side by side."""

import torch


def batchify(steps, batch_size, length, words):
    """(steps * length + 1, batch_size) words; each follows from the one before, most of the time."""
    generator = torch.Generator().manual_seed(1)
    rows = steps * length + 1
    noise = torch.randint(0, words, (rows, batch_size), generator=generator)
    text = torch.empty_like(noise)
    text[0] = noise[0]
    for row in range(1, rows):
        text[row] = torch.where(noise[row] % 4 == 0, noise[row], (text[row - 1] * 7 + 1) % words)
    return text
