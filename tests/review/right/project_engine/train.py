import torch
from comm import begin, end, on_first
from engine import fit
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from nets import make_net, make_set


def main():
    local_rank = begin()
    train_set = make_set("train")
    loader = DataLoader(train_set, batch_size=32, sampler=DistributedSampler(train_set), num_workers=4)
    model = DDP(make_net().cuda(), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters())

    @on_first
    def keep(epoch):
        torch.save(model.module.state_dict(), f"{epoch}.pt")
        print("kept", epoch)

    for stage in range(3):
        fit(model, loader, optimizer, stage, keep)
    end()


if __name__ == "__main__":
    main()
