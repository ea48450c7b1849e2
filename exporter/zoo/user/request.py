"""The jobs that a user's models make: each with its source, its inputs and what they decide."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.pipeline.jobs import Job
from exporter.zoo.errors import ZooError
from exporter.zoo.registry import USER
from exporter.zoo.user.inputs import BATCH, TensorInput, parsed_inputs
from exporter.zoo.user.source import SourceFinder, distribution_of, split_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.settings import Settings, UserModel


def user_jobs(
    models: Sequence[str], user: UserModel, settings: Sequence[Settings], *, batch_asked: bool
) -> list[Job]:
    """Return a job for each of the user's models under each configuration.

    Args:
        models: their names, ``package.module:factory``.
        user: what is asked of all of them.
        settings: the configurations, with the batch sizes that are asked for.
        batch_asked: whether a batch size was asked for at all.

    Raises:
        ZooError: if a module does not exist, an input does not parse, or a batch size is asked
            that no input has.
    """
    if user.inputs and user.inputs_from:
        raise ZooError("--input and --inputs exclude each other")
    for folder in user.module_path:
        if not Path(folder).is_dir():
            raise ZooError(f"--module-path {folder} is no folder")
    tensors = [one.value for one in parsed_inputs(user) if isinstance(one.value, TensorInput)]
    swept = any(BATCH in one.sizes for one in tensors)
    if user.inputs_from:
        split_name(user.inputs_from)
        user = replace(user, user_batch=not batch_asked)
    elif not swept:
        if batch_asked:
            raise ZooError(
                f"--batch-size says nothing unless an input has it: write {BATCH} for a size, such "
                "as 'float32[batch,3,224,224]'"
            )
        first = next((one.shape(1) for one in tensors if one.sizes), ())
        settings = [replace(one, batch_size=max(1, *first[:1], 1)) for one in settings]
    finder = SourceFinder(user.module_path)
    jobs: list[Job] = []
    for name in dict.fromkeys(models):
        modules = [split_name(one)[0] for one in (name, user.inputs_from) if one]
        specs = [finder.find(module) for module in modules]
        this = replace(user, package=distribution_of(specs[0]), source=finder.digest(modules))
        jobs.extend(Job(USER, name, replace(one, user=this), this.package) for one in settings)
    return jobs
