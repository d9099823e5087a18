# corpus: idioms = nn.DataParallel; notebook cell; several models wrapped in one script; wrapped model is frozen/eval-only (teacher, EMA teacher, target net); training loop without torch DataLoader (own iterator, queue, replay buffer); criterion itself wrapped / loss module replicated
# corpus: idioms = order, crops or lengths drawn from np.random / random in dataset, sampler or loop; name = DP(Constructor(...)); clip_grad; device_ids=range(device_count()); device_count() used; np.random/random seed; .cuda()
# corpus: worlds = 2 3

# In[1]: imports
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn

random.seed(0); np.random.seed(0); torch.manual_seed(0)
USE_CUDA = torch.cuda.is_available()

# In[2]: the game

class Corridor:
    def reset(self):
        self.pos = 3
        return self.see()

    def see(self):
        state = np.zeros(7, dtype=np.float32)
        state[self.pos] = 1
        return state

    def step(self, action):
        self.pos += 1 if action == 1 else -1
        done = self.pos in (0, 6)
        return self.see(), float(self.pos == 6), done

# In[3]: replay buffer

class ReplayBuffer(object):
    def __init__(self, capacity):
        self.buffer = deque(maxlen=capacity)

    def push(self, *transition):
        self.buffer.append(transition)

    def sample(self, batch_size):
        state, action, reward, next_state, done = zip(*random.sample(self.buffer, batch_size))
        return np.stack(state), np.array(action), np.array(reward, dtype=np.float32), np.stack(next_state), np.array(done, dtype=np.float32)

    def __len__(self):
        return len(self.buffer)

# In[4]: networks

def net():
    return nn.Sequential(nn.Linear(7, 16), nn.ReLU(), nn.Linear(16, 2))

current_model = nn.DataParallel(net(), device_ids=list(range(torch.cuda.device_count()))).cuda()
target_model = nn.DataParallel(net(), device_ids=list(range(torch.cuda.device_count()))).cuda()
target_model.load_state_dict(current_model.state_dict())
optimizer = torch.optim.RMSprop(current_model.parameters(), 0.005)
criterion = nn.DataParallel(nn.SmoothL1Loss(reduction='none')).cuda()
replay = ReplayBuffer(100)

# In[5]: training

env, wins, losses = Corridor(), 0, []
state = env.reset()
for frame in range(1, 61):
    epsilon = 0.05 + 0.9 * np.exp(-frame / 30.)
    if random.random() > epsilon:
        with torch.no_grad():
            action = current_model(torch.from_numpy(state)[None].cuda()).max(1)[1].item()
    else:
        action = random.randrange(2)
    next_state, reward, done = env.step(action)
    replay.push(state, action, reward, next_state, done)
    wins += int(reward)
    state = env.reset() if done else next_state
    if len(replay) > 20 and frame % 3 == 0:
        s, a, r, s2, d = (torch.from_numpy(v).cuda() for v in replay.sample(11))
        q = current_model(s).gather(1, a[:, None]).squeeze(1)
        with torch.no_grad():
            expected = r + 0.9 * target_model(s2).max(1)[0] * (1 - d)
        loss = criterion(q, expected).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(current_model.parameters(), 1.)
        optimizer.step()
        losses.append(loss.item())
    if frame % 20 == 0:
        target_model.load_state_dict(current_model.state_dict())
        print('frame %d wins %d loss %.5f' % (frame, wins, np.mean(losses[-5:]) if losses else -1))
