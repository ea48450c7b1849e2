"""What a user's own code did wrong, in one line with their file and line."""

from __future__ import annotations

import socket
import sys
import traceback
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from exporter.failures import chain, said
from exporter.zoo.errors import BuildError
from exporter.zoo.user.source import is_installed

_HERE = ("", "localhost", "ip6-localhost", "::1")


class NetworkRefusal(BuildError):  # noqa: N818 - says what is the matter
    """Code that was run to build a model wants to read the network."""


def refuse_network() -> None:
    """Let this process read nothing from other machines: no weights are needed, nor downloaded.

    It holds until the process ends, as audit hooks do.
    """
    if not getattr(refuse_network, "in_force", False):
        sys.addaudithook(_refuse)
        refuse_network.in_force = True  # type: ignore[attr-defined]


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Stop what would leave this machine."""
    if event == "socket.getaddrinfo":
        host = arguments[0]
    elif event == "socket.connect" and arguments[0].family in (socket.AF_INET, socket.AF_INET6):
        host = arguments[1][0]
    elif event == "urllib.Request" and urlsplit(str(arguments[0])).hostname:
        host = urlsplit(str(arguments[0])).hostname
    else:
        return
    host = host.decode(errors="replace") if isinstance(host, bytes) else str(host or "")
    if host not in _HERE and not host.startswith("127."):
        raise NetworkRefusal(
            f"it reads the network ({host}); models are profiled without weights, so build it "
            "without a download"
        )


def described(what: str, error: BaseException) -> str:
    """Return in one line what was raised, and where in the user's own code.

    Args:
        what: the part of the user's code that was run.
        error: what it raised.
    """
    cause = next((one for one in chain(error) if isinstance(one, NetworkRefusal)), None)
    text = str(cause) if cause else f"{what} raised {said(error)}"
    place = place_of(error)
    return f"{text} ({place})" if place else text


def place_of(error: BaseException) -> str:
    """Return file and line of the user's own code that an error comes from, "" if none took part.

    It is the innermost line of theirs: what Python, torch and other installed packages did below
    it is not their concern.
    """
    for one in chain(error):
        if isinstance(one, SyntaxError) and one.filename:
            return f"{shown_path(one.filename)}:{one.lineno}"
        places = [
            f"{shown_path(frame.f_code.co_filename)}:{line}"
            for frame, line in traceback.walk_tb(one.__traceback__)
            if not is_installed(frame.f_code.co_filename)
        ]
        if places:
            return places[-1]
    return ""


def shown_path(file: str) -> str:
    """Return a path as people write it: from the working folder, if it is in there."""
    path = Path(file)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
