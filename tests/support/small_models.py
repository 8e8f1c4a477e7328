"""Small models in the place of large ones, for the same code."""

from common.models import ResNet50

RESNET = ResNet50(blocks=(2, 1, 1, 1), width=4, image_size=48, num_classes=10)
