import torch.nn as nn


class HintLoss(nn.Module):
    def __init__(self, s_width, t_width):
        super().__init__()
        self.regress = nn.Linear(s_width, t_width)
        self.crit = nn.MSELoss()

    def forward(self, f_s, f_t):
        return self.crit(self.regress(f_s), f_t)
