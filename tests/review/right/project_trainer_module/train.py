import os

import torch
import torch.distributed as dist
from things import Logger, Net, Numbers, options
from trainer import Trainer


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    trainer = Trainer(Net(), Numbers(), options(), Logger(), torch.device("cuda", local_rank))
    for epoch in range(100):
        trainer.sampler.set_epoch(epoch)
        trainer.run_epoch()
        if dist.get_rank() == 0:
            trainer.save("last.pt")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
