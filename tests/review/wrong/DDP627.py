# The script says which GPUs there are, to every rank alike. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
# wrapped
os.environ['CUDA_VISIBLE_DEVICES'] = '0'
# ---
from os import environ
environ['CUDA_VISIBLE_DEVICES'] = '0,1'

# wrapped
# ---
os.environ.setdefault('CUDA_VISIBLE_DEVICES', '2')

# wrapped
# ---
os.environ.update(CUDA_VISIBLE_DEVICES='0,1,2,3')

# wrapped
