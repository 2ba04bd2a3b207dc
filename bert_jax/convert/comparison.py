"""Our outputs beside those of transformers, where torch and it are installed."""

import contextlib
import dataclasses
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from etils import epath
from jaxtyping import Float, Int

from bert_jax.config import BertConfig
from bert_jax.formats.huggingface_config import HEADS
from bert_jax.model.bert import head_outputs
from bert_jax.model.inputs import Inputs

LARGEST_DIFFERENCE = 1e-3
"""Past it, the two do not compute the same model: float32 noise is near 1e-5."""
LIBRARIES = ("torch", "transformers")

_ROWS, _TOKENS = 2, 64


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How far two libraries' outputs of one batch are apart."""

    largest_difference: float | None = None
    """Of all outputs, absolute; None where they were not compared."""
    outputs: dict[str, float] = dataclasses.field(default_factory=dict)
    """The same of each output."""
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    """Of the libraries, where they are installed."""
    reason: str = ""
    """Why they were not compared."""

    @property
    def warning(self) -> str:
        """A line where the two are not the same model, else nothing."""
        apart = self.largest_difference
        if apart is None or apart <= LARGEST_DIFFERENCE:
            return ""
        name = max(self.outputs, key=self.outputs.__getitem__)
        return (
            f"{name} differs from transformers {self.versions['transformers']} by "
            f"{apart:.2g} on one batch, where rounding gives {LARGEST_DIFFERENCE:g} at "
            "most; do not trust the model before you know why."
        )


NOT_COMPARED = Comparison(reason="nobody asked")


def compare(
    directory: epath.Path, config: BertConfig, params: dict[str, Any]
) -> Comparison:
    """Compare a model with what transformers makes of its files.

    What stops transformers from loading them is a reason in the result, and no error:
    our own checks decide on the files.

    Args:
        directory: config.json and safetensors of the model.
        params: the same model, here.
    """
    missing = [n for n in LIBRARIES if importlib.util.find_spec(n) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        return Comparison(reason=f"{' and '.join(missing)} {verb} not installed")
    versions = {name: importlib.metadata.version(name) for name in LIBRARIES}
    inputs = fixed_batch(config)
    try:
        theirs = _their_outputs(directory, config, inputs, "pooler" in params)
    except Exception as error:  # whatever two large libraries raise
        reason = f"transformers does not run it: {' '.join(str(error).split())[:200]}"
        return Comparison(versions=versions, reason=reason)
    ours = _our_outputs(config, params, inputs)
    assert ours.keys() == theirs.keys()
    apart = {
        name: float(np.abs(values - theirs[name].reshape(values.shape)).max())
        for name, values in ours.items()
    }
    if not all(map(np.isfinite, apart.values())):
        reason = "an output is NaN or infinite"
        return Comparison(versions=versions, reason=reason)
    return Comparison(max(apart.values()), apart, versions)


def fixed_batch(config: BertConfig) -> dict[str, Int[np.ndarray, "B T"]]:
    """Rows that follow from the sizes of the vocabulary and of the tables alone.

    The last row is padded from its middle on, and each has a second segment where
    there is one.
    """
    length = min(_TOKENS, config.max_position_embeddings)
    numbers = np.arange(_ROWS * length).reshape(_ROWS, length)
    second = numbers % length >= length // 4
    mask = np.ones_like(numbers)
    mask[-1, (length + 1) // 2 :] = 0
    return {
        # By a step that meets the whole vocabulary in time.
        "input_ids": (numbers * 7919 + 1) % config.vocab_size,
        "segment_ids": second * mask * min(1, config.type_vocab_size - 1),
        "attention_mask": mask,
    }


def _our_outputs(
    config: BertConfig, params: dict[str, Any], inputs: dict[str, Any]
) -> dict[str, Float[np.ndarray, "..."]]:
    found = jax.jit(head_outputs, static_argnums=0)(
        config,
        params,
        Inputs(
            inputs["input_ids"], inputs["segment_ids"], inputs["attention_mask"] > 0
        ),
    )
    wanted = ["scores", "token_scores", "pair_scores"]
    if config.head == "encoder":
        wanted = ["hidden_states", "pooled"]
    return {name: np.asarray(found[name]) for name in wanted if name in found}


def _their_outputs(
    directory: epath.Path, config: BertConfig, inputs: dict[str, Any], pooler: bool
) -> dict[str, Float[np.ndarray, "..."]]:
    """The same outputs under our names, computed on the processor in float32."""
    torch, transformers = (importlib.import_module(name) for name in LIBRARIES)
    name = next(name for name, head in HEADS.items() if head == config.head)
    with _silence(transformers):
        model, report = getattr(transformers, name).from_pretrained(
            str(directory),
            local_files_only=True,
            use_safetensors=True,
            dtype=torch.float32,
            attn_implementation="eager",
            output_loading_info=True,
        )
    absent = [
        key
        for key in (*report["missing_keys"], *report["mismatched_keys"])
        if pooler or "pooler." not in str(key)
    ]
    if absent:
        raise ValueError(f"it does not find {', '.join(map(str, absent[:3]))}")
    ids, segments, mask = (torch.from_numpy(values) for values in inputs.values())
    if config.head == "multiple_choice":
        ids, segments, mask = ids[None], segments[None], mask[None]
    with torch.no_grad():
        found = model.eval()(
            ids, token_type_ids=segments, attention_mask=mask, output_hidden_states=True
        )
    outputs = _by_our_names(config.head, found, torch)
    if "token_scores" in outputs:  # of a table that is padded beyond the vocabulary
        outputs["token_scores"] = outputs["token_scores"][..., : config.vocab_size]
    if config.head == "encoder" and pooler:
        outputs["pooled"] = found.pooler_output
    return {name: values.numpy() for name, values in outputs.items()}


def _by_our_names(head: str, found: Any, torch: Any) -> dict[str, Any]:
    if head == "encoder":
        return {"hidden_states": torch.stack(found.hidden_states)}
    if head == "pretraining":
        return {
            "token_scores": found.prediction_logits,
            "pair_scores": found.seq_relationship_logits,
        }
    if head == "question_answering":
        return {"scores": torch.stack([found.start_logits, found.end_logits], -1)}
    return {"token_scores" if head == "masked_lm" else "scores": found.logits}


@contextlib.contextmanager
def _silence(transformers: Any) -> Iterator[None]:
    """Without its bars and reports, which are for those who load models by it."""
    logging = transformers.utils.logging
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()
