# corpus: idioms = nn.DataParallel; module level, bare; text/csv/json log file; makedirs/mkdir; rmtree/copy of code; training loop without torch DataLoader (own iterator, queue, replay buffer)
# corpus: worlds = 2 3
"""Files that are written, read back, appended to and counted, and decide on the learning rate."""
import contextlib, csv, glob, io, json, os, sys, tempfile
from pathlib import Path
import torch, torch.nn as nn
torch.manual_seed(0)
out = Path('out'); out.mkdir(exist_ok=True)
model = nn.DataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))).cuda()
opt = torch.optim.SGD(model.parameters(), 0.1)
data = torch.randn(40, 4); y = (data.sum(1) > 0).long()
run = len(list(out.glob('run*')))
(out / f'run{run}').mkdir()
log = out / f'run{run}' / 'log.csv'
for epoch in range(3):
    for i in range(0, 40, 8):
        x, t = data[i:i+8].cuda(), y[i:i+8].cuda()
        loss = nn.functional.cross_entropy(model(x), t)
        opt.zero_grad(); loss.backward(); opt.step()
        new = not log.exists()
        with log.open('a', newline='') as f:
            w = csv.writer(f)
            if new: w.writerow(['epoch', 'loss'])
            w.writerow([epoch, loss.item()])
    with open(log) as f:
        rows = list(csv.reader(f))
    print('rows', len(rows), file=sys.stdout)
    state = {'n': len(rows)}
    (out / 'state.json').write_text(json.dumps(state))
    if json.loads((out / 'state.json').read_text())['n'] > 100: break
    buf = io.StringIO()
    with contextlib.redirect_stdout(buf):
        print('inside', epoch)
    print(len(buf.getvalue()), buf.getvalue().strip())
    with open(out / 'notes.txt', 'a+') as f:
        f.write('epoch %d\n' % epoch)
        f.seek(0)
        n = len(f.readlines())
    print('notes', n)
    if n >= 3:
        print('enough notes')
        opt.param_groups[0]['lr'] *= 0.1
    torch.save(model.state_dict(), out / f'm{epoch}.pt')
    keep = sorted(glob.glob('out/m*.pt'))[-2:]
    for old in sorted(glob.glob('out/m*.pt')):
        if old not in keep: os.unlink(old)
print(sorted(os.listdir('out')), opt.param_groups[0]['lr'])
x = data[:8].cuda(); loss = model(x).sum(); opt.zero_grad(); loss.backward(); opt.step()
print(loss.item())
