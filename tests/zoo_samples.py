"""Models that stand for their zoos: one of each way of building and running, the small ones."""

from __future__ import annotations

TORCHVISION = (
    "alexnet", "convnext_tiny", "deeplabv3_mobilenet_v3_large", "densenet121", "efficientnet_b0",
    "googlenet", "maxvit_t", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_large", "mvit_v2_s",
    "r3d_18", "raft_small", "regnet_y_400mf", "resnet50", "s3d", "shufflenet_v2_x1_0",
    "squeezenet1_0", "swin3d_t", "swin_v2_t", "vgg11_bn", "vit_b_32",
)  # fmt: skip
TIMM = (
    "convnext_atto", "deit_tiny_distilled_patch16_224", "eva02_tiny_patch14_224", "lcnet_050",
    "mixer_s32_224", "repvgg_a0", "swinv2_cr_tiny_224", "test_vit",
)  # fmt: skip
# One of each kind of input, and what it is given.
TRANSFORMERS = {
    "albert": ["input_ids", "attention_mask"],
    "clip": ["input_ids", "pixel_values", "attention_mask"],
    "convnext": ["pixel_values"],
    "decision_transformer": ["states", "actions", "rewards", "returns_to_go", "timesteps"],
    "detr": ["pixel_values"],
    "granitemoe": ["input_ids", "attention_mask"],
    "idefics3": ["input_ids", "attention_mask"],
    "lxmert": ["input_ids", "visual_feats", "visual_pos", "attention_mask"],
    "mamba": ["input_ids", "attention_mask"],
    "paligemma": ["input_ids", "attention_mask", "pixel_values", "token_type_ids"],
    "patchtst": ["past_values"],
    "ernie4_5_vl_moe": [
        "input_ids", "attention_mask", "pixel_values", "image_grid_thw", "mm_token_type_ids",
    ],
    "t5": ["input_ids", "attention_mask", "decoder_input_ids"],
    "videomae": ["pixel_values"],
    "wav2vec2": ["input_values"],
    "whisper": ["input_features", "decoder_input_ids"],
}  # fmt: skip
# Two layers are enough to see a kind of model run.
LAYERS = {
    "granitemoe": "num_hidden_layers",
    "idefics3": "text_config.num_hidden_layers",
    "mamba": "num_hidden_layers",
    "paligemma": "text_config.num_hidden_layers",
    "ernie4_5_vl_moe": "text_config.num_hidden_layers",
}
REFERENCE = ("bert_large", "gpt2", "stable_diffusion_unet")

# What stands for a whole zoo; for another one, its first model does.
SMALLEST = {"torchvision": "mobilenet_v3_small", "timm": "test_vit", "transformers": "albert",
            "reference": "gpt2"}  # fmt: skip


def overrides(name: str) -> tuple[tuple[str, str], ...]:
    """Return the configuration under which a model of transformers is run."""
    return ((LAYERS[name], "2"),) if name in LAYERS else ()
