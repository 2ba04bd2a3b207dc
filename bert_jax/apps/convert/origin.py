"""What is known of a model's origin: its licence, languages and base model."""

import contextlib
import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from etils import epath

from bert_jax.checkpoints.steps import read_config
from bert_jax.formats.hub import HUB, cached_card, parse_name
from bert_jax.formats.huggingface import CONFIG, is_huggingface
from bert_jax.formats.imported import RECEIPT
from bert_jax.formats.model_files import CARD
from bert_jax.pretrained import Model, resolve_path
from bert_jax.storage.files import read_json_object

_MAX_RUNS = 20
"""Runs that are followed, each started from the one before."""
_LICENSE = r"[a-z0-9][a-z0-9.+-]*"
_LANGUAGE = r"[a-z]{2,3}|multilingual"
_NAME = r"[\w.-]+/[\w.-]+"


@dataclasses.dataclass(frozen=True)
class Origin:
    """Facts for the head of a model card; empty: not known."""

    license: str = ""
    """As the hub names it, such as apache-2.0."""
    languages: tuple[str, ...] = ()
    """Codes of ISO 639."""
    base_model: str = ""
    """A model of the hub, as OWNER/NAME."""

    def stated(self, license: str, languages: str | Sequence[str]) -> "Origin":
        """Return the origin with what the user states, where it is not empty.

        Raise ValueError if it is not a name of a licence or a code of a language.
        """
        if license and not re.fullmatch(_LICENSE, license):
            raise ValueError(
                f"license={license!r} is not a name of a licence at the hub, such as "
                "apache-2.0, cc-by-4.0 or other."
            )
        languages = [languages] if isinstance(languages, str) else languages
        for code in languages:
            if not re.fullmatch(_LANGUAGE, code):
                raise ValueError(
                    f"language={code!r} is not an ISO 639 code, such as en or de."
                )
        license, languages = license or self.license, languages or self.languages
        return Origin(license, tuple(languages), self.base_model)


def origin_of(model: Model) -> Origin:
    """Return what is known by the runs that made a model, and the first one's source.

    Nothing is downloaded: the card of a model of the hub is that in the cache.
    """
    directory, run = model.directory, model.run
    if run and (directory / CONFIG).exists():  # it may have been moved since
        run = read_config(directory)
    for _ in range(_MAX_RUNS if model.sources else 0):  # without, made in memory
        if is_huggingface(directory):
            return read_card(directory / CARD)
        source = run.get("init_from")
        with contextlib.suppress(OSError, ValueError):  # no receipt of a conversion
            source = source or read_json_object(directory / RECEIPT, "").get("source")
        if not isinstance(source, str) or not source:
            return Origin()
        if source.startswith(HUB):
            card = read_card(cached_card(source))
            return Origin(card.license, card.languages, parse_name(source)[0])
        try:
            directory, imported = resolve_path(source)
            run = {} if imported else read_config(directory)
        except (OSError, ValueError):
            return Origin()  # it was moved or removed since
    return Origin()


def read_card(path: epath.Path | Path | None) -> Origin:
    """Return what the head of a card says; nothing if there is none, or it is bad."""
    fields: dict[str, Any] = {}
    if path is not None and path.is_file():
        # Anyone wrote it: the errors are those of YAML and of Unicode.
        with contextlib.suppress(Exception):
            from huggingface_hub import metadata_load

            fields = metadata_load(Path(path)) or {}

    def valid(name: str, pattern: str) -> tuple[str, ...]:
        value = fields.get(name)
        values = value if isinstance(value, list) else [value]
        return tuple(v for v in values if re.fullmatch(pattern, str(v)) and v)

    license = next(iter(valid("license", _LICENSE)), "")
    base_model = next(iter(valid("base_model", _NAME)), "")
    return Origin(license, valid("language", _LANGUAGE), base_model)
