def run_epoch(batches, model, criterion, opt):
    total_tokens = total_loss = 0
    for i, batch in enumerate(batches):
        out = model(batch.src, batch.src_mask)[:, :-1]
        loss = criterion(out.reshape(-1, out.size(-1)), batch.trg_y.reshape(-1)).sum() / batch.ntokens
        if opt is not None:
            loss.backward()
            opt.step()
            opt.optimizer.zero_grad()
            print('step %d lr %.5f loss %.4f' % (i, opt.rate(), loss.item()))
        total_loss += loss.item() * batch.ntokens.item()
        total_tokens += batch.ntokens.item()
    return total_loss / total_tokens
