import sys

sys.path.insert(0, "src")
from seg.launch import launch  # noqa: E402
from seg.train import worker  # noqa: E402

if __name__ == "__main__":
    launch(worker, config=sys.argv[1] if len(sys.argv) > 1 else "base")
