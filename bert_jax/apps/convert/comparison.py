"""Compare the outputs of a model with those of another library, if it is installed."""

import contextlib
import dataclasses
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from jaxtyping import Float, Int

from bert_jax.config import BertConfig
from bert_jax.config.model import Params
from bert_jax.formats.families import FAMILIES, FamilyFormat
from bert_jax.formats.model_files import short_reason
from bert_jax.model.bert import head_outputs
from bert_jax.model.inputs import Inputs

MAX_DIFFERENCE = 1e-3
"""Above it the models differ: rounding in float32 gives about 1e-5."""
LIBRARIES = ("torch", "transformers")
Outputs = dict[str, Float[np.ndarray, "..."]]
"""Arrays by the names of a model's outputs."""

_ROWS, _TOKENS = 2, 64


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The differences between two libraries' outputs for one batch."""

    largest_difference: float | None = None
    """The largest absolute difference of all outputs; None if not compared."""
    outputs: dict[str, float] = dataclasses.field(default_factory=dict)
    """The largest absolute difference of each output."""
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    """The versions of the libraries that compute the other outputs, if installed: last
    the one that the model is for."""
    reason: str = ""
    """Why they were not compared."""

    @property
    def warning(self) -> str:
        """One line if the models differ, else an empty string."""
        difference = self.largest_difference
        if difference is None or difference <= MAX_DIFFERENCE:
            return ""
        name = max(self.outputs, key=self.outputs.__getitem__)
        return (
            f"{name} differs from {self._library} by {difference:.2g} on one batch, "
            f"but rounding gives {MAX_DIFFERENCE:g} at most; find the cause before you "
            "use the model."
        )

    @property
    def summary(self) -> str:
        """The largest difference, or why there is none, in a few words."""
        if self.largest_difference is None:
            return f"not compared, because {self.reason}"
        return f"{self._library} differs by {self.largest_difference:.1g} at most"

    @property
    def _library(self) -> str:
        return " ".join([*self.versions.items()][-1])


NOT_COMPARED = Comparison(reason="not requested")


def compare(directory: epath.Path, config: BertConfig, params: Params) -> Comparison:
    """Compare a model with the one that transformers loads from its files.

    If transformers cannot load them, the result has the reason, and no error is
    raised: our own checks have accepted the files.
    """
    inputs, pooler = fixed_batch(config), "pooler" in params
    return compare_outputs(
        LIBRARIES,
        lambda: our_outputs(config, params, inputs),
        lambda: transformers_outputs(directory, config, inputs, pooler),
    )


def compare_outputs(
    libraries: Sequence[str], ours: Callable[[], Outputs], theirs: Callable[[], Outputs]
) -> Comparison:
    """Return the differences of outputs by name, or why other libraries have none.

    The last of `libraries`, which compute `theirs`, is the one the model is for.
    """
    missing = [n for n in libraries if importlib.util.find_spec(n) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        return Comparison(reason=f"{' and '.join(missing)} {verb} not installed")
    versions = {name: importlib.metadata.version(name) for name in libraries}
    try:
        others = theirs()
    except Exception as error:  # each library raises its own classes
        reason = f"{libraries[-1]} does not run it: {short_reason(error, 200)}"
        return Comparison(versions=versions, reason=reason)
    outputs = ours()
    assert outputs.keys() == others.keys()
    differences = {
        name: float(np.abs(values.squeeze() - others[name].squeeze()).max())
        for name, values in outputs.items()
    }
    if not all(map(np.isfinite, differences.values())):
        return Comparison(versions=versions, reason="an output is NaN or infinite")
    return Comparison(max(differences.values()), differences, versions)


def fixed_batch(config: BertConfig) -> dict[str, Int[np.ndarray, "B T"]]:
    """Return a batch that depends only on the sizes of the model.

    The last row is padded from its middle on. Each row has a second segment, if the
    model has two.
    """
    length = min(_TOKENS, config.max_position_embeddings)
    positions = np.arange(_ROWS * length).reshape(_ROWS, length)
    second = positions % length >= length // 4
    mask = np.ones_like(positions)
    mask[-1, (length + 1) // 2 :] = 0
    return {
        # The step is a prime, so that ids spread over the whole vocabulary.
        "input_ids": (positions * 7919 + 1) % config.vocab_size,
        "segment_ids": second * mask * min(1, config.type_vocab_size - 1),
        "attention_mask": mask,
    }


def our_outputs(config: BertConfig, params: Params, inputs: dict[str, Any]) -> Outputs:
    ids, segments, mask = (jnp.asarray(values) for values in inputs.values())
    outputs = jax.jit(head_outputs, static_argnums=0)(
        config, params, Inputs(ids, segments, mask > 0)
    )
    wanted = ["scores", "token_scores", "pair_scores"]
    if config.head == "encoder":
        wanted = ["hidden_states", "pooled"]
    return {name: np.asarray(outputs[name]) for name in wanted if name in outputs}


def transformers_outputs(
    directory: epath.Path, config: BertConfig, inputs: dict[str, Any], pooler: bool
) -> Outputs:
    """Return transformers' outputs under our names, computed on the CPU in float32."""
    torch, transformers = (importlib.import_module(name) for name in LIBRARIES)
    family = FAMILIES[config.family]
    # The class without a head leaves out the others that a file may have.
    cls = getattr(transformers, family.class_of(config.head))
    with _without_logging(transformers):
        model, report = cls.from_pretrained(
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
    index = None if config.head == "multiple_choice" else ...
    arguments = {
        name: torch.from_numpy(values)[index]
        for name, values in _arguments(family, model.config, inputs).items()
    }
    with torch.no_grad():
        result = model.eval()(**arguments, output_hidden_states=True)
    outputs = _by_our_names(config.head, result, torch)
    if "token_scores" in outputs:  # the table may be padded
        outputs["token_scores"] = outputs["token_scores"][..., : config.vocab_size]
    if config.head == "encoder" and pooler:
        outputs["pooled"] = result.pooler_output
    return {name: values.numpy() for name, values in outputs.items()}


def _arguments(
    family: FamilyFormat, config: Any, inputs: dict[str, Any]
) -> dict[str, Int[np.ndarray, "B T"]]:
    """Return the arguments of transformers' model, which has this `config`."""
    ids, segments, mask = inputs.values()
    arguments = {"input_ids": ids, "attention_mask": mask}
    if family.has_segments:
        arguments["token_type_ids"] = segments
        # Else RoBERTa's classes do not count tokens that have the id of padding.
        first = family.first_position({"pad_token_id": config.pad_token_id or 0})
        positions = np.arange(first, first + ids.shape[1])
        arguments["position_ids"] = np.broadcast_to(positions, ids.shape).copy()
    return arguments


def _by_our_names(head: str, result: Any, torch: Any) -> dict[str, Any]:
    if head == "encoder":
        return {"hidden_states": torch.stack(result.hidden_states)}
    if head == "pretraining":
        return {
            "token_scores": result.prediction_logits,
            "pair_scores": result.seq_relationship_logits,
        }
    if head == "question_answering":
        return {"scores": torch.stack([result.start_logits, result.end_logits], -1)}
    return {"token_scores" if head == "masked_lm" else "scores": result.logits}


@contextlib.contextmanager
def _without_logging(transformers: Any) -> Iterator[None]:
    """Disable the progress bars and reports of transformers in the block."""
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
