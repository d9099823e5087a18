"""What scripts do with a clock: what stays each rank's own, and what must be rank 0's."""

from __future__ import annotations

METER = """
class AverageMeter:
    def __init__(self, name, fmt=":f"):
        self.name, self.fmt = name, fmt
        self.reset()

    def reset(self):
        self.val = 0
        self.avg = 0
        self.sum = 0
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        return ("{name} {val" + self.fmt + "} ({avg" + self.fmt + "})").format(**self.__dict__)

class ProgressMeter:
    def __init__(self, count, meters, prefix=""):
        self.meters, self.prefix = meters, prefix

    def display(self, batch):
        entries = [self.prefix + str(batch)]
        entries += [str(meter) for meter in self.meters]
        print("\\t".join(entries))
"""
TIMER = """
class Timer:
    def __init__(self):
        self.total_time = 0.
        self.calls = 0
        self.start_time = 0.
        self.diff = 0.
        self.average_time = 0.

    def tic(self):
        self.start_time = time.time()

    def toc(self, average=True):
        self.diff = time.time() - self.start_time
        self.total_time += self.diff
        self.calls += 1
        self.average_time = self.total_time / self.calls
        if average:
            return self.average_time
        return self.diff
"""
FORMAT_TIME = """
def format_time(seconds):
    days = int(seconds / 3600 / 24)
    seconds = seconds - days * 3600 * 24
    hours = int(seconds / 3600)
    f = ''
    i = 1
    if days > 0:
        f += str(days) + 'D'
        i += 1
    if hours > 0 and i <= 2:
        f += str(hours) + 'h'
        i += 1
    if f == '':
        f = '0ms'
    return f
"""
EPOCH = """
def train(loader, model):
    batch_time, losses = AverageMeter("Time"), AverageMeter("Loss")
    progress = ProgressMeter(len(loader), [batch_time, losses])
    end = time.time()
    for i, (x, y) in enumerate(loader):
        losses.update(model(x).item())
        batch_time.update(time.time() - end)
        end = time.time()
        if i % 10 == 0:
            progress.display(i)
    return losses.avg
"""

OWN = {
    "a meter that is shown": METER
    + EPOCH
    + "best = 9\nloss = train(loader, model)\nif loss < best:\n    save()\n",
    "a meter in a format": METER
    + """
batch_time = AverageMeter("Time")
end = time.time()
batch_time.update(time.time() - end)
print("Time {batch_time.val:.3f} ({batch_time.avg:.3f})".format(batch_time=batch_time))
print(f"{batch_time.avg:.3f}", "%.3f" % batch_time.val)
""",
    "a meter of a dictionary": METER
    + """
meters = {}
meters["time"] = AverageMeter("Time")
start = time.perf_counter()
meters["time"].update(time.perf_counter() - start)
print(meters["time"].avg)
""",
    "a meter of an object": METER
    + """
class Trainer:
    def __init__(self):
        self.batch_time = AverageMeter("Time")
        self.losses = AverageMeter("Loss")
    def step(self):
        end = time.time()
        self.losses.update(loss().item())
        self.batch_time.update(time.time() - end)
    def fit(self):
        self.step()
        print(self.batch_time.avg)
        if self.losses.avg < 1:
            save()
Trainer().fit()
""",
    "a timer that is shown": TIMER
    + "timer = Timer()\ntimer.tic()\nspent = timer.toc(average=False)\nprint(spent)\n",
    "a timer as a context": """
class Timed:
    def __enter__(self):
        self.begin = time.perf_counter()
        return self
    def __exit__(self, *error):
        self.took = time.perf_counter() - self.begin
        print(f"took {self.took:.2f}")
with Timed() as timed:
    step()
""",
    "a function that formats": FORMAT_TIME
    + "t = time.time()\nprint('took ' + format_time(time.time() - t))\n",
    "a formatter that returns early": """
def human(s):
    '''Seconds in words.'''
    if s < 60:
        return "%ds" % s
    return "%dm" % (s // 60)
t = time.time()
print(human(time.time() - t))
""",
    "a bar of its own": FORMAT_TIME
    + """
last_time = time.time()
def progress_bar(current, total, msg=None):
    global last_time
    cur_time = time.time()
    step_time = cur_time - last_time
    last_time = cur_time
    L = []
    L.append('  Step: %s' % format_time(step_time))
    if msg:
        L.append(' | ' + msg)
    msg = ''.join(L)
    sys.stdout.write(msg)
    for i in range(80 - len(msg) - 3):
        sys.stdout.write(' ')
progress_bar(1, 2, 'Loss: %.3f' % loss)
""",
    "a list of times": """
times = []
t = time.time()
times.append(time.time() - t)
print(numpy.mean(times), sum(times))
""",
    "a log of a dictionary": """
def report(values, step):
    for key, value in values.items():
        if key.startswith("l_"):
            board.add_scalar(key, value, step)
t = time.time()
values = {"l_loss": loss()}
values["time"] = time.time() - t
report(values, 1)
""",
    "settings of a log line": """
class Log:
    def __init__(self, path):
        self.file = open(path, "w")
    def line(self, **fields):
        if "time" not in fields:
            fields["time"] = time.time()
        self.file.write(json.dumps(fields) + "\\n")
log = Log("log.txt")
log.line(loss=1)
""",
    "the speed": """
t = time.time()
fps = 64 / (time.time() - t)
pbar.set_postfix(fps=fps)
logger.info('%.1f', fps)
""",
    "the rest": """
def eta(start, done, total):
    spent = time.time() - start
    return spent / done * (total - done)
start = time.time()
print(str(datetime.timedelta(seconds=int(eta(start, 3, 9)))))
""",
    "a decorator": """
def timed(function):
    def wrapper(*args):
        start = time.time()
        result = function(*args)
        print(function.__name__, time.time() - start)
        return result
    return wrapper
@timed
def fit(x):
    return x
if fit(1) > 0:
    save()
""",
    "returned beside a loss": """
def train():
    start = time.time()
    loss = step()
    return loss, time.time() - start
loss, spent = train()
print(spent)
if loss < 1:
    save()
""",
    "returned and kept": """
def train():
    start = time.time()
    return time.time() - start
total = 0
for epoch in range(2):
    total += train()
print(total / 2)
""",
    "asked whether it is there": """
class Clock:
    def __init__(self):
        self.last = None
    def tick(self):
        if self.last is not None:
            print(time.time() - self.last)
        self.last = time.time()
Clock().tick()
""",
    "a bar that shows it": """
from tqdm import tqdm
bar = tqdm(loader)
t = time.time()
bar.suffix = str(time.time() - t)
""",
    "a wait": "t = time.time()\nwork()\ntime.sleep(max(0, 5 - (time.time() - t)))\n",
    "another meter decides": METER
    + """
def run(loader):
    data_time = AverageMeter("Data")
    top1 = AverageMeter("Acc")
    end = time.time()
    data_time.update(time.time() - end)
    top1.update(accuracy())
    return top1.avg
if run(loader) > best:
    save()
""",
}

SHARED = {
    "a meter decides": METER
    + """
batch_time = AverageMeter("Time")
end = time.time()
batch_time.update(time.time() - end)
if batch_time.avg > 5:
    quit()
""",
    "a meter decides, returned": METER
    + """
def run():
    batch_time, losses = AverageMeter("Time"), AverageMeter("Loss")
    end = time.time()
    batch_time.update(time.time() - end)
    return losses.avg, batch_time.avg
loss, spent = run()
while spent < 5:
    work()
""",
    "a meter given to a function, decides": METER
    + """
def count(meter, t):
    meter.update(time.time() - t)
meter = AverageMeter("Time")
count(meter, time.time())
if meter.avg > 5:
    quit()
""",
    "a meter by another name decides": METER
    + """
first = AverageMeter("Time")
second = first
t = time.time()
second.update(time.time() - t)
if first.avg > 5:
    quit()
""",
    "a meter in a list decides": METER
    + """
meters = []
meter = AverageMeter("Time")
meters.append(meter)
t = time.time()
meter.update(time.time() - t)
if meters[0].avg > 5:
    quit()
""",
    "a meter that decides itself": """
class Meter:
    def update(self, val):
        self.val = val
        if self.val > 5:
            stop()
meter = Meter()
t = time.time()
meter.update(time.time() - t)
""",
    "a timer decides": TIMER + "timer = Timer()\ntimer.tic()\nif timer.toc() > 5:\n    quit()\n",
    "a timer's field decides": TIMER
    + "timer = Timer()\ntimer.tic()\ntimer.toc()\nif timer.total_time > 5:\n    quit()\n",
    "a timer that is called": """
class Spent:
    def __init__(self):
        self.start = time.time()
    def __call__(self):
        return time.time() - self.start
spent = Spent()
while spent() < 5:
    work()
""",
    "a limit in a function": """
def over(spent, limit):
    return spent > limit
t = time.time()
if over(time.time() - t, 5):
    quit()
""",
    "a limit in a function, two deep": """
def late(spent):
    return spent > 5
def check(spent):
    if late(spent):
        quit()
t = time.time()
check(spent=time.time() - t)
""",
    "by keyword arguments": """
def check(**fields):
    if fields["spent"] > 5:
        quit()
t = time.time()
check(spent=time.time() - t)
""",
    "by starred arguments": """
def check(loss, spent):
    if spent > 5:
        quit()
t = time.time()
pair = (1, time.time() - t)
check(*pair)
""",
    "a seed": "t = time.time()\nrandom.seed(time.time() - t)\n",
    "a seed in a function": "def seed(n):\n    torch.manual_seed(n)\nseed(int(time.time()))\n",
    "a name in a function": "def name():\n    return 'run-%d' % time.time()\nos.makedirs(name())\n",
    "a name that is moved": "t = time.time()\nos.replace('a', 'b%d' % t)\n",
    "a name by join": "t = time.time()\nopen(os.path.join('a', str(t)), 'w')\n",
    "and saves": "t = time.time()\ntime.time() - t > 5 and save()\n",
    "or validates": "t = time.time()\nfine = time.time() - t < 5 or validate()\n",
    "one of two": "t = time.time()\nx = save() if time.time() - t > 5 else None\n",
    "a filter": "t = time.time()\nx = [save(one) for one in (1, 2) if time.time() - t > 5]\n",
    "how many rounds": "t = time.time()\nfor _ in range(int(time.time() - t)):\n    step()\n",
    "how many entries": """
times, t = [], time.time()
if time.time() - t > 5:
    times.append(1)
for one in times:
    step()
""",
    "leaves early": """
def save_now_and_then():
    if time.time() - last > 5:
        return
    save()
last = time.time()
save_now_and_then()
""",
    "skips": "t = time.time()\nfor x in (1, 2):\n    if time.time() - t > 5:\n        continue\n    step(x)\n",
    "raises": "t = time.time()\nif time.time() - t > 5:\n    raise TimeoutError()\n",
    "prints a number of a tensor": """
t = time.time()
if time.time() - t > 5:
    print(loss.item())
    t = time.time()
""",
    "sets a rate": "t = time.time()\noptimizer.param_groups[0]['lr'] = time.time() - t\n",
    "scales a loss": "t = time.time()\n(loss * (time.time() - t)).backward()\n",
    "in a tensor that a model gets": "t = time.time()\nmodel(torch.tensor(time.time() - t))\n",
    "a list of times decides": """
times = []
t = time.time()
times.append(time.time() - t)
if max(times) > 5:
    quit()
""",
    "a list that was given": """
def measure(times):
    t = time.time()
    times.append(time.time() - t)
times = []
measure(times)
if times[0] > 5:
    quit()
""",
    "a list that an object was given": """
class Measure:
    def __init__(self, times):
        self.times = times
    def step(self):
        t = time.time()
        self.times.append(time.time() - t)
times = []
Measure(times).step()
if times[0] > 5:
    quit()
""",
    "a field of settings": "args.start = time.time()\nrun(args)\n",
    "a class's own field": "class Run:\n    begin = time.time()\nif Run.begin > limit:\n    quit()\n",
    "by its name as text": """
class Run:
    def __init__(self):
        self.begin = time.time()
        self.other = 1
run = Run()
print(run.begin)
if getattr(run, "begin") > limit:
    quit()
""",
    "all local names": "def name():\n    t = time.time()\n    os.mkdir('a{t}'.format(**locals()))\nname()\n",
    "a library that is not known": "t = time.time()\nlibrary.watch(time.time() - t)\n",
    "by keywords that are not followed": """
t = time.time()
torch.save(obj=time.time() - t, f="a.pth")
""",
    "set by a name": """
class Run:
    pass
run = Run()
for key, value in {"begin": time.time()}.items():
    setattr(run, key, value)
""",
    "set, with a star": "t = time.time()\nsetattr(*[run, 'begin', time.time() - t])\n",
    "a deadline": "deadline = time.time() + 60\nwhile time.time() < deadline:\n    step()\n",
    "a generator": """
def until(limit):
    start = time.time()
    while time.time() - start < limit:
        yield 1
for _ in until(5):
    step()
""",
    "a property": """
class Run:
    def __init__(self):
        self.begin = time.time()
    @property
    def spent(self):
        return time.time() - self.begin
run = Run()
if run.spent > 5:
    quit()
""",
    "handed on as a function": """
def now():
    return time.time()
schedule(now)
""",
    "a lambda": "now = lambda: time.time()\nif now() > 5:\n    quit()\n",
    "an assertion": "t = time.time()\nassert time.time() >= t\n",
    "a key": "times = {}\ntimes[time.time()] = 1\nsave(times)\n",
    "a text in which something is looked for": "t = str(time.time())\nif '7' in t:\n    save()\n",
}
