# Every rank loads the checkpoint onto the device of the rank that saved it. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
# wrapped
model.load_state_dict(torch.load('a.pt'))
if local_rank == 0:
    torch.save(model.state_dict(), 'a.pt')
# ---
# wrapped
state = torch.load('a.pt', weights_only=True)
model.module.load_state_dict(state['net'])
if local_rank == 0:
    torch.save({'net': model.module.state_dict()}, 'a.pt')
# ---
# wrapped
def resume(path):
    checkpoint = torch.load(path)
    model.load_state_dict(checkpoint['model'], strict=False)
def keep(path):
    torch.save({'model': model.state_dict()}, path)
