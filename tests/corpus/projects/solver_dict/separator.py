import torch.nn as nn


class Separator(nn.Module):
    def __init__(self, hidden):
        super(Separator, self).__init__()
        self.hidden = hidden
        self.encoder = nn.Conv1d(1, hidden, 3, padding=1)
        self.net = nn.LSTM(hidden, hidden, batch_first=True, bidirectional=True)
        self.decoder = nn.Linear(2 * hidden, 1)

    def forward(self, mixture):
        h = self.encoder(mixture.unsqueeze(1)).relu().transpose(1, 2)
        self.net.flatten_parameters()
        return self.decoder(self.net(h)[0]).squeeze(2)

    @staticmethod
    def serialize(model, optimizer, epoch):
        return {'hidden': model.hidden, 'state_dict': model.state_dict(), 'optim_dict': optimizer.state_dict(), 'epoch': epoch}
