import argparse

import torch
from data import build_loaders
from engine import train_one_epoch, validate
from model import build_model
from utils.dist import cleanup, init_distributed_mode, save_on_master


def main(args):
    init_distributed_mode(args)
    train_loader, val_loader = build_loaders(args)
    model, without_ddp = build_model(args)
    criterion = torch.nn.CrossEntropyLoss().cuda()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9)
    if args.resume:
        without_ddp.load_state_dict(torch.load(args.resume, map_location="cpu")["model"])
    for epoch in range(args.epochs):
        train_loader.sampler.set_epoch(epoch)
        train_one_epoch(model, train_loader, criterion, optimizer, epoch)
        accuracy = validate(model, val_loader)
        print("accuracy", accuracy)
        save_on_master({"model": without_ddp.state_dict(), "epoch": epoch}, args.output)
    cleanup()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch-size", type=int, default=32, help="total batch size over all GPUs, divided in data.py")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--sync-bn", action="store_true")
    parser.add_argument("--resume", default="")
    parser.add_argument("--output", default="last.pth")
    main(parser.parse_args())
