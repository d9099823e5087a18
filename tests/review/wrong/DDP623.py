# The script starts its ranks with `torch.distributed.launch`, which is going away. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
import subprocess, sys
subprocess.run([sys.executable, '-m', 'torch.distributed.launch', 'train.py'])
# ---
os.system('python -m torch.distributed.launch --nproc_per_node 2 train.py')
# ---
from torch.distributed.launch import main
main()
# ---
import subprocess
subprocess.Popen('python3 -m torch.distributed.launch t.py', shell=True)
