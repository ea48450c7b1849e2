"""What is to be profiled, within what limits, and what became of it. Light to import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exporter.settings import Settings
    from store.records import Profile


@dataclass(frozen=True, slots=True)
class Job:
    """One model under one configuration."""

    zoo: str
    model: str
    settings: Settings
    package: str  # distribution that defines the model, "" for a file that is not installed


@dataclass(frozen=True, slots=True)
class Limits:
    """What one model may take; 0: as much as it likes."""

    seconds: float = 0.0
    memory_bytes: int = 0  # of the process that traces it


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job."""

    job: Job
    profile: Profile | None  # None: it failed
    error: str  # why, in one line; "" if it did not fail
    seconds: float
