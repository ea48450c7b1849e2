"""The zoo of transformers: every model type that ``AutoModel`` knows, configured by default.

A model type is a key of ``transformers.MODEL_MAPPING``; its model is the class that this mapping
names (the first, if it names several), which is the base model without a head for a task. Its
configuration is what the configuration class makes without arguments, changed by ``--set``; a
dotted key (``text_config.num_hidden_layers``) reaches into a nested configuration, and
``attn_implementation`` and ``experts_implementation`` choose among transformers' own code paths.

Inputs are made by :mod:`exporter.zoo.transformers.inputs` from the signature of ``forward``.
Nothing is downloaded: while a model is built, the hub's client is offline.
"""

from __future__ import annotations

import ast
import contextlib
import os
from typing import TYPE_CHECKING, Any

from exporter.zoo.base import Built
from exporter.zoo.errors import BuildError
from exporter.zoo.options import refuse_key
from exporter.zoo.sources import models_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.settings import Settings

# What transformers keeps under a private name and takes as an argument.
_IMPLEMENTATIONS = ("attn_implementation", "experts_implementation")


class TransformersZoo:
    """The base model of every model type, in the default configuration of the type."""

    name = "transformers"
    package = "transformers"
    takes = frozenset({"image_size", "seq_len", "set"})

    def names(self) -> tuple[str, ...]:
        """Return the names of all model types, read from the installed source."""
        path = models_folder("transformers") / "auto" / "modeling_auto.py"
        return tuple(sorted({*_keys(ast.parse(path.read_text("utf-8")), "MODEL_MAPPING_NAMES")}))

    def build(self, name: str, settings: Settings) -> Built:
        """Return the model of that type, with inputs for its forward pass.

        Raises:
            BuildError: if the model cannot take the settings, or is not had without a download or
                a further package.
        """
        with offline():
            import transformers
            from transformers import CONFIG_MAPPING, MODEL_MAPPING

            transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
            try:
                config = CONFIG_MAPPING[name]()
                model_class: Any = MODEL_MAPPING[type(config)]
            except KeyError as error:
                raise BuildError(f"transformers has no model type {name!r}") from error
            except Exception as error:
                raise BuildError(
                    f"{name} has no configuration by default: {_line(error)}"
                ) from error
            if isinstance(model_class, tuple):
                model_class = model_class[0]
            return build_configured(name, model_class, config, settings)


def build_configured(
    name: str, model_class: Any, config: Any, settings: Settings, seq_len: int = 0
) -> Built:
    """Return a model of transformers with inputs.

    Args:
        name: of the model, in the zoo that asks.
        model_class: a subclass of ``transformers.PreTrainedModel``.
        config: its configuration, which the settings change.
        settings: what is asked for.
        seq_len: tokens in a sequence, unless the settings say; 0 for the default of the inputs.

    Raises:
        BuildError: if the model cannot be built.
    """
    import torch
    from transformers import initialization

    from exporter.zoo.building import build_on_meta
    from exporter.zoo.transformers.inputs import make_inputs

    options = settings.options()
    implementations = {key: options.pop(key) for key in _IMPLEMENTATIONS if key in options}
    configure(name, config, options)
    if settings.image_size:
        set_image_size(name, config, settings.image_size)
    dtype = getattr(torch, settings.dtype)

    def create() -> Any:
        with initialization.no_init_weights():
            model = model_class._from_config(config, dtype=dtype, **implementations)
        model.tie_weights()  # which initialisation would have done
        return model

    with offline():
        try:
            model = build_on_meta(create, fallback=False)
        except Exception as error:
            raise BuildError(f"{name} cannot be built: {_line(error)}") from error
    model.train(settings.mode == "train")
    kwargs = make_inputs(name, model, config, settings, seq_len)
    return Built(model, kwargs=kwargs)


def configure(name: str, config: Any, options: dict[str, Any]) -> None:
    """Change a configuration as asked.

    Raises:
        BuildError: if the configuration lacks a key, with near names.
    """
    for key, value in options.items():
        owner, path = config, key.split(".")
        for i, part in enumerate(path):
            known = {*owner.to_dict(), *getattr(owner, "attribute_map", {})}
            if part not in known or (
                i + 1 < len(path) and not hasattr(getattr(owner, part), "to_dict")
            ):
                raise refuse_key(name, key, {".".join([*path[:i], one]) for one in known})
            if i + 1 < len(path):
                owner = getattr(owner, part)
        try:
            setattr(owner, path[-1], value)
        except Exception as error:
            raise BuildError(
                f"{name} cannot be built with {key}={value!r}: {_line(error)}"
            ) from error


def set_image_size(name: str, config: Any, size: int) -> None:
    """Change the size of the images that a model takes.

    Raises:
        BuildError: if its configuration has none.
    """
    owners = [config, *(getattr(config, key) for key in ("vision_config",) if hasattr(config, key))]
    owners = [owner for owner in owners if hasattr(owner, "image_size")]
    if not owners:
        raise BuildError(f"the configuration of {name} has no image_size")
    for owner in owners:
        before = owner.image_size
        owner.image_size = type(before)([size] * 2) if isinstance(before, (list, tuple)) else size


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """Return a context in which the hub's client downloads nothing, whenever it was imported."""
    import huggingface_hub.constants as hub

    variables = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    before = {name: os.environ.get(name) for name in variables}
    constant = hub.HF_HUB_OFFLINE
    os.environ.update(dict.fromkeys(variables, "1"))
    hub.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        hub.HF_HUB_OFFLINE = constant
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _keys(tree: ast.Module, name: str) -> Iterator[str]:
    """Yield the keys of the ``OrderedDict([(key, value), ...])`` that a name is given."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=ast.Call(args=[pairs])):
                if target == name:
                    yield from (key for key, _ in ast.literal_eval(pairs))


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


zoo = TransformersZoo()
