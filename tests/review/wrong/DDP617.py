# One rank alone loads weights into a model that is wrapped already. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
# wrapped
if local_rank == 0:
    model.load_state_dict(torch.load('a.pt', map_location='cpu'))
# ---
# wrapped
is_main = dist.get_rank() == 0
if is_main:
    model.module.load_state_dict(state)
# ---
# wrapped
if os.path.exists('a.pt') and local_rank == 0:
    model.load_state_dict(torch.load('a.pt', map_location='cpu'))
# ---
model = DDP(net.cuda())
if dist.get_rank() == 0:
    net.load_state_dict(torch.load('a.pt', map_location='cpu'))
# ---
# wrapped
optimizer = torch.optim.Adam(model.parameters())
if local_rank == 0 and os.path.exists('a.pt'):
    optimizer.load_state_dict(torch.load('a.pt', map_location='cpu')['optimizer'])
