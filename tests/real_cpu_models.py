"""Models whose predictions for the CPU are compared with real runs, and what differs."""

from __future__ import annotations

from zoo_profiles import MODELS

# Too slow for every run of the tests, or not to be run on small images.
UNSUITED = ("3d_", "s3d", "mvit", "quantized", "vit_h", "vit_l", "regnet_y_128gf", "regnet_y_32gf",
            "regnet_x_32gf", "efficientnet_v2_l", "efficientnet_b7", "efficientnet_b6",
            "convnext_large", "wide_resnet101", "resnext101", "vgg19", "vgg16", "vgg13_bn",
            "fcn_resnet101", "deeplabv3_resnet101")  # fmt: skip


NO_COMPARISON = {
    "raft_large": "keeps tensors of one call until the next",
    "raft_small": "keeps tensors of one call until the next",
    "maxvit_t": "has no size below 224 that its windows divide",
}


VIDEO = ("mc3_18", "r3d_18", "r2plus1d_18")


NAMES = tuple(
    n
    for n in MODELS
    if n in VIDEO or (n not in NO_COMPARISON and not any(part in n for part in UNSUITED))
)
