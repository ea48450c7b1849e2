"""Models as users write them, and factories that go wrong each in its own way."""

# ruff: noqa: D103, BLE001 - it is how users write

import os
import signal
import sys
import urllib.request

import torch
from torch import nn
from toy_parts import WIDTH


class Net(nn.Module):
    """One linear layer, with a second input that is optional."""

    def __init__(self, width=WIDTH, bias=True):
        super().__init__()
        self.fc = nn.Linear(width, 2, bias=bias)

    def forward(self, x, scale=None):
        out = self.fc(x)
        return out if scale is None else out * scale


class NamedOnly(Net):
    """The same layer, whose inputs are given by name."""

    def forward(self, *, x, scale=None):
        return super().forward(x, scale)


class Tokens(nn.Module):
    """Looks at the values of its mask, as language models do."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 4)

    def forward(self, ids, mask):
        if not mask.all():
            raise ValueError("a hole in the mask")
        return {"states": self.embed(ids)}


class Half(nn.Module):
    """Made in bfloat16."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 2, dtype=torch.bfloat16)

    def forward(self, x):
        return self.fc(x)


standing = Net(4)
number = 3


def needs_width(width, depth=1):
    return Net(width * depth)


def raises():
    raise ValueError("width must be even")


def returns_number():
    return 3


def exits():
    sys.exit("usage: toy_nets")


def downloads():
    urllib.request.urlopen("http://weights.example/w.pt")


def hides_download():
    try:
        urllib.request.urlopen("http://weights.example/w.pt")
    except Exception:
        raise OSError("check your connection") from None


def falls_back():
    try:
        urllib.request.urlopen("http://weights.example/w.pt")
    except Exception:
        return Net()


def crashes():
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs():
    while True:
        pass


def hangs_too():
    hangs()


def hogs():
    parts = []
    while True:
        parts.append(bytearray(1 << 26))


class Doubles(Net):
    """The same layer, which computes in the default type of where it was built."""

    def forward(self, x, factor=None):
        return super().forward(x.to(self.fc.weight.dtype), factor)


def other_default():
    torch.set_default_dtype(torch.float64)
    return Doubles()


def batch_of(batch_size):
    return {"x": torch.zeros(batch_size, 8)}


def six():
    return torch.zeros(6, 8), torch.ones(2)


def with_scale():
    return (torch.zeros(5, 8),), {"scale": torch.ones(2)}


def nothing():
    return None
