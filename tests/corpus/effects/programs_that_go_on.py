# corpus: idioms = nn.DataParallel; subprocess/os.system
"""A program beside the training that is written to and read from, a pipe of two, and what others print, line by line."""
import os
import subprocess
import sys

import torch
import torch.nn as nn

DOUBLE = 'import sys\nfor line in sys.stdin: print(int(line) * 2, flush=True)'


class Settings:
    machine = os.popen('echo here').read()


torch.manual_seed(3)
for line in os.popen('echo one; echo two'):
    print(line.strip())
print(Settings.machine.strip(), [each.read() for each in map(os.popen, ['echo three', 'echo four'])])
teacher = subprocess.Popen([sys.executable, '-c', DOUBLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
net = nn.DataParallel(nn.Linear(4, 2).cuda())
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(5):
    teacher.stdin.write('%d\n' % step)
    teacher.stdin.flush()
    weight = int(teacher.stdout.readline())
    loss = net(torch.randn(6, 4).cuda()).pow(2).mean() * (weight + 1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, weight, '%.4f' % loss.item(), teacher.poll())
teacher.stdin.close()
print(teacher.wait())
words = subprocess.Popen(['echo', 'b a'], stdout=subprocess.PIPE)
count = subprocess.Popen(['wc', '-w'], stdin=words.stdout, stdout=subprocess.PIPE, text=True)
print(count.communicate()[0].strip())
with subprocess.Popen(['echo', 'done'], stdout=subprocess.PIPE, text=True) as last:
    text = last.stdout.read()
if last.returncode != 0:
    raise SystemExit(3)
with open('last.txt', 'w') as file:
    file.write(text)
