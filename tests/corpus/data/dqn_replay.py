# corpus: idioms = training loop without torch DataLoader (own iterator, queue, replay buffer); order, crops or lengths drawn from np.random / random in dataset, sampler or loop; wrapped model is frozen/eval-only (teacher, EMA teacher, target net); several models wrapped in one script; DataLoader built in: none in closure (relative to the wrap); np.random/random seed; torch.manual_seed; clip_grad
"""Deep Q-learning on a line: acting with the wrapped net, a replay buffer, a target net."""
import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

Transition = namedtuple('Transition', ('state', 'action', 'next_state', 'reward'))
seed = 543
random.seed(seed)
np.random.seed(seed)
torch.manual_seed(seed)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Line(object):
    """Walk to the right end; the wind is random."""

    def reset(self):
        self.x, self.t = 0.0, 0
        return np.array([self.x, 0.0], dtype=np.float32)

    def step(self, action):
        self.t += 1
        self.x += (0.3 if action == 1 else -0.3) + np.random.normal(0, 0.05)
        done = abs(self.x) > 1.5 or self.t >= 12
        return np.array([self.x, self.t / 12.], dtype=np.float32), float(self.x > 1.5), done


class ReplayMemory(object):
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self):
        super(DQN, self).__init__()
        self.layer1 = nn.Linear(2, 24)
        self.head = nn.Linear(24, 2)

    def forward(self, x):
        return self.head(F.relu(self.layer1(x)))


policy_net = nn.DataParallel(DQN().to(device))
target_net = nn.DataParallel(DQN().to(device))
target_net.load_state_dict(policy_net.state_dict())
target_net.eval()
optimizer = torch.optim.RMSprop(policy_net.parameters(), lr=2e-3)
memory = ReplayMemory(60)
steps_done = 0


def select_action(state):
    global steps_done
    steps_done += 1
    if random.random() > 0.9 * 0.97 ** steps_done:
        with torch.no_grad():
            return policy_net(state).max(1)[1].view(1, 1)
    return torch.tensor([[random.randrange(2)]], device=device, dtype=torch.long)


def optimize_model(batch_size=10, gamma=0.9):
    if len(memory) < batch_size:
        return None
    batch = Transition(*zip(*memory.sample(batch_size)))
    non_final_mask = torch.tensor([s is not None for s in batch.next_state], device=device, dtype=torch.bool)
    state_batch, action_batch = torch.cat(batch.state), torch.cat(batch.action)
    reward_batch = torch.cat(batch.reward)
    q = policy_net(state_batch).gather(1, action_batch)
    next_values = torch.zeros(batch_size, device=device)
    if non_final_mask.any():
        next_states = torch.cat([s for s in batch.next_state if s is not None])
        next_values[non_final_mask] = target_net(next_states).max(1)[0].detach()
    loss = F.smooth_l1_loss(q, (next_values * gamma + reward_batch).unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    for param in policy_net.parameters():
        param.grad.data.clamp_(-1, 1)
    optimizer.step()
    return loss.item()


env = Line()
for i_episode in range(5):
    state = torch.from_numpy(env.reset()).unsqueeze(0).to(device)
    total, losses, done = 0., [], False
    while not done:
        action = select_action(state)
        obs, reward, done = env.step(action.item())
        next_state = None if done else torch.from_numpy(obs).unsqueeze(0).to(device)
        memory.push(state, action, next_state, torch.tensor([reward - 0.01], device=device))
        state = next_state
        total += reward
        if len(memory) % 2 == 0:
            losses.append(optimize_model())
    losses = [one for one in losses if one is not None]
    if i_episode % 2 == 0:
        target_net.load_state_dict(policy_net.state_dict())
    print('episode %d return %.1f steps %d loss %.6f' % (i_episode, total, steps_done, np.mean(losses) if losses else -1))
