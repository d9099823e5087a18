# Ranks get shares of different lengths, and the longest waits for the others. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
# wrapped
rank, n = dist.get_rank(), dist.get_world_size()
for name in names[rank::n]:
    model(load(name)).backward()
# ---
# wrapped
mine = files[local_rank::dist.get_world_size()]
for i, f in enumerate(mine):
    loss = model(load(f))
    loss.backward()
# ---
# wrapped
loader = DataLoader(Images(files[dist.get_rank()::dist.get_world_size()]), batch_size=4)
for x in loader:
    model(x).backward()
