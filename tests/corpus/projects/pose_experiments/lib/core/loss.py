import torch.nn as nn


class JointsMSELoss(nn.Module):
    def __init__(self, use_target_weight):
        super(JointsMSELoss, self).__init__()
        self.criterion = nn.MSELoss(reduction='mean')
        self.use_target_weight = use_target_weight

    def forward(self, output, target, target_weight):
        batch_size, num_joints = output.size(0), output.size(1)
        heatmaps_pred = output.reshape((batch_size, num_joints, -1)).split(1, 1)
        heatmaps_gt = target.reshape((batch_size, num_joints, -1)).split(1, 1)
        loss = 0
        for idx in range(num_joints):
            pred, gt = heatmaps_pred[idx].squeeze(1), heatmaps_gt[idx].squeeze(1)
            if self.use_target_weight:
                pred, gt = pred.mul(target_weight[:, idx]), gt.mul(target_weight[:, idx])
            loss += 0.5 * self.criterion(pred, gt)
        return loss / num_joints
