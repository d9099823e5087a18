# corpus: idioms = nn.DataParallel; yaml/yacs/json config; function main/train/run
# corpus: answer = 1 DDP506:9
"""Hydra makes a folder by the clock before main begins."""
import hydra
import torch
import torch.nn as nn


@hydra.main(config_path='conf', config_name='config')
def main(cfg):
    model = nn.DataParallel(nn.Linear(4, 2)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), cfg.lr)
    for step in range(8):
        loss = model(torch.randn(8, 4).cuda()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == '__main__':
    main()
