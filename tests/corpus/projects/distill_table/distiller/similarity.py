import torch.nn as nn
import torch.nn.functional as F


class Similarity(nn.Module):
    def __init__(self, s_width, t_width):
        super().__init__()

    def forward(self, f_s, f_t):
        g_s, g_t = F.normalize(f_s @ f_s.t()), F.normalize(f_t @ f_t.t())
        return (g_s - g_t).pow(2).mean()
