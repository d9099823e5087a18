from torch.nn.utils import clip_grad_norm_


def train(model, loader, criterion, center, optimizer, optimizer_center, epoch):
    model.train()
    for step, (images, pids) in enumerate(loader):
        images, pids = images.cuda(), pids.cuda()
        optimizer.zero_grad()
        optimizer_center.zero_grad()
        score, feat = model(images)
        loss = criterion(score, feat, pids)
        loss.backward()
        clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        for param in center.parameters():
            param.grad.data *= 1.0 / 0.005
        optimizer_center.step()
        acc = (score.max(1)[1] == pids).float().mean()
        with open('reid.csv', 'a') as f:
            f.write('%d,%d,%.5f,%.3f\n' % (epoch, step, loss.item(), acc.item()))
