"""What the checkpoints of a pretraining run predict for the same few texts."""

import dataclasses
from collections.abc import Callable

import numpy as np

from bert_jax.apps.run_page.run_record import RunRecord, finite
from bert_jax.checkpoints.steps import CHECKPOINTS
from bert_jax.config import PretrainConfig
from bert_jax.data.masked_texts import (
    MIN_LETTERS,
    masked_texts,
    spread,
    validation_rows,
)
from bert_jax.data.records import Dataset
from bert_jax.inference.predictor import Predictor, load
from bert_jax.runs.pretraining_run import open_dataset_of_run
from bert_jax.storage.atomic import is_address
from bert_jax.storage.files import JsonObject

NUM_TEXTS, NUM_PROMPTS, MAX_CHECKPOINTS, NUM_PREDICTIONS = 5, 2, 8, 5
_CHARACTERS, _TOKENS = (24, 100), (8, 30)
"""Tokens of a prompt and of its continuation, of single characters and of words."""


def open_validation(config: PretrainConfig) -> tuple[Dataset | None, str]:
    """Return the dataset of a run if it has validation rows, else None and why."""
    path = config.data.path
    if not path:
        return None, "The configuration names no dataset."
    if is_address(path):
        return None, f"The dataset, {path}, is in a bucket and is not copied for this."
    try:
        # Without the checksums of the rows, which may be tens of gigabytes.
        dataset = open_dataset_of_run(config.data)
        _ = dataset.tokenizer  # raises if it is another one
    except (OSError, ValueError) as error:
        return None, str(error)
    if not len(dataset.validation):
        return None, f"{path} has no validation rows."
    return dataset, ""


def samples(
    run: RunRecord, dataset: Dataset | None, reason: str, report: Callable[[str], None]
) -> JsonObject:
    """Return what the kept checkpoints of a pretraining run predict, as JSON.

    It has the `steps` of the checkpoints, `checkpoints`, the number of them that there
    are, `problems`, one line each, and `texts`. Each text has what was predicted by
    step. A causal model continues prompts; another fills masks. A checkpoint that the
    run removes meanwhile, or that is damaged, is a problem. If the dataset is None,
    `reason` says why.
    """
    config, steps = run.config, run.checkpoints
    assert isinstance(config, PretrainConfig)
    nothing: JsonObject = {"steps": [], "checkpoints": 0, "problems": [], "texts": []}
    if dataset is None and config.objective == "masked_lm":
        report(f"The page has no samples. {reason}")
        return nothing | {"problems": [reason]}
    if not steps:
        return nothing | {"problems": ["The run has no complete checkpoint yet."]}
    missing = f"There are no prompts of validation rows. {reason}"
    problems = [missing] if dataset is None else []
    texts, use = (_prompts if config.objective == "causal_lm" else _masks)(dataset)
    if not texts and dataset is not None:
        problems.append(
            f"No validation row of {dataset.path} has enough text with a frequent word "
            f"of {MIN_LETTERS} letters that is a single token."
        )
    by_step = {}
    chosen = spread(steps, MAX_CHECKPOINTS) if texts else []
    for number, step in enumerate(chosen, 1):
        if len(chosen) > 1:
            report(f"Samples of checkpoint {step:,}, {number} of {len(chosen)}.")
        try:
            by_step[step] = use(load(run.workdir / CHECKPOINTS / str(step)))
        except (OSError, ValueError) as error:
            problems.append(f"checkpoint {step}: {error}")
    return {
        "steps": list(by_step),
        "problems": problems,
        "texts": [
            text | {"by_step": [results[place] for results in by_step.values()]}
            for place, text in enumerate(texts)
        ],
        "checkpoints": len(steps),
    }


def _masks(
    dataset: Dataset | None,
) -> tuple[list[JsonObject], Callable[[Predictor], list[JsonObject]]]:
    """Return texts with a mask, and what gives their most probable tokens."""
    assert dataset is not None
    # The model may have more positions, which were not trained.
    texts = masked_texts(dataset, NUM_TEXTS, dataset.sequence_length - 2)

    def fill(bert: Predictor) -> list[JsonObject]:
        masked = [text.text for text in texts]
        all_tokens = bert.fill_mask(masked, k=bert.config.vocab_size)
        filled = []
        for tokens, text in zip(all_tokens, texts, strict=True):
            rank = [token for token, _ in tokens].index(text.answer)
            best = [(token, finite(p)) for token, p in tokens[:NUM_PREDICTIONS]]
            probability = finite(tokens[rank][1])
            filled.append({"top": best, "rank": rank + 1, "probability": probability})
        return filled

    return [*map(dataclasses.asdict, texts)], fill


def _prompts(
    dataset: Dataset | None,
) -> tuple[list[JsonObject], Callable[[Predictor], list[JsonObject]]]:
    """Return the beginnings of some validation rows and "", and what continues them."""
    is_characters = dataset is not None and dataset.tokenizer.kind == "char"
    begun, longest = _CHARACTERS if is_characters else _TOKENS
    prompts: list[str] = []
    if dataset is not None:
        tokenizer = dataset.tokenizer
        num_tokens = min(begun, dataset.sequence_length // 2)
        for row in validation_rows(dataset, 10 * NUM_PROMPTS):
            ids = row["tokens"][1 : 1 + num_tokens].astype(np.int64)
            # The names of special tokens would be encoded as texts.
            if not set(tokenizer.special_ids.values()) & set(ids.tolist()):
                prompts.append(tokenizer.decode(ids))
    prompts = [*spread(prompts, NUM_PROMPTS), ""]

    def extend(bert: Predictor) -> list[JsonObject]:
        room = bert.trained_length or bert.config.max_position_embeddings
        extended = []
        for prompt in prompts:
            used = len(bert.tokenizer.encode(prompt).ids) + 1  # [CLS]
            num_tokens = max(1, min(longest, room - used))
            # Without a key, both draw by the same.
            greedy = bert.generate(prompt, num_tokens, 0.0).removeprefix(prompt)
            drawn = bert.generate(prompt, num_tokens, 1.0).removeprefix(prompt)
            extended.append({"greedy": greedy, "drawn": drawn})
        return extended

    return [{"text": prompt} for prompt in prompts], extend
