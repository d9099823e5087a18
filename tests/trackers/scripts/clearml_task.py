"""ClearML: the server may change the options; loggers of the task, from anywhere."""

import argparse

import torch
import torch.nn as nn
from clearml import Logger, Task


def log(step, loss):
    Logger.current_logger().report_scalar("train", "loss", loss, step)


def main():
    task = Task.init(project_name="sums", task_name="first")
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()
    args = task.connect(args)
    options = {"momentum": 0.0, "nesterov": False}
    task.connect(options)
    print("task", task.id, task.name, "lr", args.lr, options)
    torch.manual_seed(3)
    net = nn.DataParallel(nn.Linear(3, 3).cuda())
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr, **options)
    for step in range(6):
        loss = (net(torch.randn(5, 3).cuda()) - 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log(step, loss.item())
        task.get_logger().report_text(f"step {step}")
    if Task.current_task() is not None:
        task.close()


if __name__ == "__main__":
    main()
