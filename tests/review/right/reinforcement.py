"""Each rank plays on its own; the policy is wrapped; ranks print with their numbers; the learner's log is rank 0's."""
import argparse
import os
import random

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.tensorboard import SummaryWriter


class Agent(nn.Module):
    def __init__(self, inputs, actions):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, 64), nn.Tanh())
        self.actor, self.critic = nn.Linear(64, actions), nn.Linear(64, 1)

    def get_value(self, x):
        return self.critic(self.body(x))

    def forward(self, x):
        hidden = self.body(x)
        return torch.distributions.Categorical(logits=self.actor(hidden)), self.critic(hidden)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--updates", type=int, default=1000)
    args = parser.parse_args()
    local_rank = int(os.getenv("LOCAL_RANK", "0"))
    world_size = int(os.getenv("WORLD_SIZE", "1"))
    if world_size > 1:
        dist.init_process_group("nccl", rank=int(os.environ["RANK"]), world_size=world_size)
    args.seed += local_rank
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed - local_rank)
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    writer = None
    if local_rank == 0:
        writer = SummaryWriter("runs/ppo")
    print(f"[rank {local_rank}] seed {args.seed}")
    agent = DistributedDataParallel(Agent(4, 2).to(device), device_ids=[local_rank])
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4)
    torch.manual_seed(args.seed)
    for update in range(args.updates):
        observations = torch.rand(128, 4, device=device)
        with torch.no_grad():
            returns = agent.module.get_value(observations) * 0.99
        policy, value = agent(observations)
        loss = (value - returns).pow(2).mean() - policy.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if local_rank == 0 and update % 10 == 0:
            writer.add_scalar("losses/value", loss.item(), update)
            print("update", update)
        print(f"rank {local_rank}, update {update}: {value.mean().item():.3f}") if update < 3 else None
    if local_rank == 0:
        writer.close()
    if world_size > 1:
        dist.destroy_process_group()
