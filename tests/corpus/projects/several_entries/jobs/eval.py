import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..'))

from common.model import load_state

if __name__ == '__main__':
    for name, value in load_state(sys.argv[1]).items():
        print(name, tuple(value.shape))
