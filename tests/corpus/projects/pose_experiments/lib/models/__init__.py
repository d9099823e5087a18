import models.pose_resnet
