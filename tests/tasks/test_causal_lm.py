"""Causal language models: their loss, what they generate, and how they are used."""

import dataclasses
import functools
import math
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from float64 import AGREEMENT, in_float64, widened
from run_helpers import (
    assert_same_run,
    classifier_config,
    latest_verified_step,
    logged_lines,
)

from bert_jax.cli.main import main
from bert_jax.config import BertConfig, MeshConfig, PrepareConfig, PretrainConfig
from bert_jax.config.model import Params
from bert_jax.data.prepare import prepare
from bert_jax.data.records import Dataset, open_dataset
from bert_jax.inference.predictor import Predictor, load
from bert_jax.masking.batch import next_tokens
from bert_jax.model.bert import compute
from bert_jax.model.generation import (
    Sampling,
    empty_cache,
    next_token_scores,
    sample,
)
from bert_jax.model.inputs import Inputs
from bert_jax.runs.finetuning import export_form, finetune
from bert_jax.runs.pretraining import pretrain, resolve
from bert_jax.tasks.pretraining.task import PretrainingTask, unigram_baseline
from bert_jax.tokenization import Tokenizer
from bert_jax.training.faults import InterruptedRun
from bert_jax.training.report import Report

PROMPT = "The judge writes"


@pytest.fixture(scope="module")
def characters(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vocabulary of the characters of the corpus."""
    output = tmp_path_factory.mktemp("characters") / "vocabulary"
    words = f"--input {corpus}/*.txt --kind char --cased --output {output}"
    assert main(["vocab", *words.split()]) == 0
    return output


def prepared(corpus: Path, tokenizer: Path, output: Path) -> Dataset:
    prepare(
        PrepareConfig(
            input=(str(corpus / "*.txt"),),
            tokenizer=str(tokenizer),
            output=str(output),
            sequence_length=32,
            validation_fraction=0.1,
            pairs="none",
            workers=1,
        )
    )
    return open_dataset(output)


@pytest.fixture(scope="module")
def rows(
    corpus: Path, tokenizer_directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> Dataset:
    output = tmp_path_factory.mktemp("rows") / "data"
    return prepared(corpus, tokenizer_directory, output)


@pytest.fixture(scope="module")
def config(rows: Dataset, small_config: PretrainConfig) -> PretrainConfig:
    """Sixty steps of two causal layers of two heads; rows of 32 of 40 positions."""
    model = dataclasses.replace(
        small_config.model,
        num_hidden_layers=2,
        hidden_size=32,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=40,
        attention="causal",
    )
    return dataclasses.replace(
        small_config,
        model=model,
        data=dataclasses.replace(small_config.data, path=str(rows.path)),
        objective="causal_lm",
        num_steps=60,
        eval_every=30,
        checkpoint_every=30,
    )


@pytest.fixture(scope="module")
def run(
    config: PretrainConfig, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, float]]:
    workdir = tmp_path_factory.mktemp("causal") / "run"
    return workdir, pretrain(config, workdir)


@pytest.fixture(scope="module")
def gpt(run: tuple[Path, dict[str, float]]) -> Predictor:
    return load(run[0])


@functools.partial(jax.jit, static_argnums=0)
def scores_of_row(
    config: BertConfig, params: Params, ids: jax.Array, length: jax.Array
) -> jax.Array:
    """The scores of the token after each position of a row that is padded."""
    inputs = Inputs(ids[None], jnp.zeros_like(ids[None]), jnp.arange(32)[None] < length)
    hidden = compute(config, params, "__call__", inputs)
    positions = jnp.arange(32)[None]
    return compute(config, params, "masked_lm_scores", hidden, positions)[0]


def all_scores(bert: Predictor, ids: list[int]) -> np.ndarray:
    """The scores of the token after each position, from the whole row at once."""
    padded = np.zeros(32, np.int32)
    padded[: len(ids)] = ids
    row = jnp.asarray(padded), jnp.int32(len(ids))
    return np.asarray(scores_of_row(bert.config, bert.params, *row))[: len(ids)]


def test_a_run_learns_more_than_frequencies(run):
    workdir, scores = run
    assert scores["clm_loss"] < scores["unigram_loss"] - 0.3
    assert 0 < scores["bits_per_byte"] < scores["unigram_bits_per_byte"]
    assert scores["clm_perplexity"] == pytest.approx(math.exp(scores["clm_loss"]))
    bits = scores["clm_loss"] / math.log(2) / scores["bytes_per_token"]
    assert scores["bits_per_byte"] == pytest.approx(bits)
    lines = logged_lines(workdir, "train")
    assert lines[-1]["clm_loss"] == lines[-1]["loss"] < lines[0]["loss"]
    assert not any(name.startswith(("mlm", "nsp")) for name in lines[-1])


def test_the_loss_is_that_of_every_real_token(config, rows):
    """By hand: the mean of -log P(token | tokens before it) over all but [CLS]."""
    config = resolve(config, rows)
    task = PretrainingTask(config, rows)
    params = jax.jit(task.init_params)(jax.random.key(0))
    batch = task.batch(0)
    sums, _ = jax.jit(task.evaluate)(params, batch)
    total = count = num_bytes = 0.0
    bert = Predictor(config.model, params, rows.tokenizer)
    for tokens, end in zip(batch["tokens"], batch["end"][:, 0], strict=True):
        ids = tokens[:end].tolist()
        logs = jax.nn.log_softmax(all_scores(bert, ids))
        total -= sum(float(logs[i, ids[i + 1]]) for i in range(len(ids) - 1))
        count += len(ids) - 1
        decoded = rows.tokenizer.decode(ids[1:-1])
        num_bytes += len(f" {decoded}".encode())
    assert float(sums["clm_loss"][1]) == count
    assert float(sums["clm_loss"][0]) == pytest.approx(total, rel=1e-5)
    assert float(sums["bytes_per_token"][0]) == num_bytes


def test_packed_rows_predict_no_first_token():
    """Two texts in a row: 2 a b 3 and 2 c 3, then padding."""
    row = {
        "tokens": np.array([[2, 7, 8, 3, 2, 9, 3, 0]], np.uint16),
        "first": np.array([[0, 4]]),
        "second": np.array([[4, 7]]),
        "end": np.array([[4, 7]]),
    }
    batch = next_tokens(row)
    np.testing.assert_array_equal(batch.labels[0], [7, 8, 3, 2, 9, 3, 0])
    np.testing.assert_array_equal(batch.weights[0], [1, 1, 1, 0, 1, 1, 0])
    assert batch.predicted is None


@pytest.mark.slow
def test_several_devices_and_microbatches_learn_the_same(config, tmp_path):
    """Without dropout, whose random numbers differ from device to device."""
    model = dataclasses.replace(
        config.model, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    short = dataclasses.replace(
        config, model=model, num_steps=3, eval_every=3, checkpoint_every=3
    )
    mesh = MeshConfig(data=2, fsdp=2)
    several = dataclasses.replace(short, mesh=mesh, microbatches=2)
    losses = []
    for name, settings in (("one", short), ("several", several)):
        pretrain(settings, tmp_path / name)
        lines = logged_lines(tmp_path / name, "train")
        losses.append([line["clm_loss"] for line in lines])
    # A run computes in float32, whose sums differ by 1e-7 or so of a loss.
    np.testing.assert_allclose(*losses, rtol=1e-5)


def test_no_score_sees_a_later_token(gpt):
    ids = [gpt.tokenizer.cls_id, *gpt.tokenizer.encode(PROMPT).ids.tolist()]
    for place in range(1, len(ids)):
        changed = [*ids[:place], 5 + (ids[place] == 5), *ids[place + 1 :]]
        one, other = all_scores(gpt, ids), all_scores(gpt, changed)
        np.testing.assert_array_equal(one[:place], other[:place])
        assert np.abs(one[place:] - other[place:]).max() > 1e-4
        masked = dataclasses.replace(gpt.config, attention="bidirectional")
        both = Predictor(masked, gpt.params, gpt.tokenizer)
        difference = all_scores(both, ids) - all_scores(both, changed)
        assert np.abs(difference[:place]).max() > 1e-5, "the other attention does"


def test_the_cache_gives_the_scores_of_the_whole_row(gpt):
    ids = [gpt.tokenizer.cls_id, *gpt.tokenizer.encode(PROMPT).ids.tolist()]
    step = jax.jit(next_token_scores, static_argnums=0)
    config = in_float64(gpt.config)
    with jax.enable_x64(True):
        params = widened(jax.device_get(gpt.params))
        expected = all_scores(Predictor(config, params, gpt.tokenizer), ids)
        cache = empty_cache(config, 32)
        for position, token in enumerate(ids):
            place = jnp.int32(token), jnp.int32(position)
            scores, cache = step(config, params, *place, cache)
            np.testing.assert_allclose(scores, expected[position], atol=AGREEMENT)


def test_generation_without_chance(gpt):
    """Each token is the one with the highest score, [SEP] ends the text."""
    ids = [gpt.tokenizer.cls_id, *gpt.tokenizer.encode(PROMPT).ids.tolist()]
    special = set(gpt.tokenizer.special_ids.values()) - {gpt.tokenizer.sep_id}
    for _ in range(8):
        scores = all_scores(gpt, ids)[-1].copy()
        scores[list(special)] = -np.inf
        ids.append(int(scores.argmax()))
        if ids[-1] == gpt.tokenizer.sep_id:
            break
    expected = gpt.tokenizer.decode(i for i in ids[1:] if i != gpt.tokenizer.sep_id)
    assert gpt.generate(PROMPT, num_tokens=8, temperature=0.0) == expected


def test_generation_by_chance(gpt):
    one = gpt.generate(PROMPT, num_tokens=16, key=jax.random.key(1))
    assert [one] == gpt.generate([PROMPT], num_tokens=16, key=jax.random.key(1))
    others = {gpt.generate("", num_tokens=16, key=jax.random.key(i)) for i in range(5)}
    assert len(others) > 1
    assert one.startswith("the judge writes")
    # The highest score alone, by each of the options.
    best = gpt.generate(PROMPT, num_tokens=16, temperature=0.0)
    assert gpt.generate(PROMPT, num_tokens=16, top_k=1) == best
    assert gpt.generate(PROMPT, num_tokens=16, top_p=1e-6) == best


def test_samples_follow_the_scores():
    scores = jnp.log(jnp.array([0.1, 0.4, 0.2, 0.3]))
    draw = jax.jit(jax.vmap(sample, in_axes=(None, None, 0)))
    keys = jax.random.split(jax.random.key(0), 20_000)

    def fractions(temperature=1.0, top_k=0, top_p=1.0):
        numbers = Sampling(
            jnp.float32(temperature), jnp.int32(top_k), jnp.float32(top_p)
        )
        return np.bincount(draw(scores, numbers, keys), minlength=4) / len(keys)

    np.testing.assert_allclose(fractions(), [0.1, 0.4, 0.2, 0.3], atol=0.015)
    np.testing.assert_allclose(fractions(top_k=2), [0, 4 / 7, 0, 3 / 7], atol=0.015)
    # 0.4 + 0.3 reach 0.6, and 0.4 alone does not.
    np.testing.assert_allclose(fractions(top_p=0.6), [0, 4 / 7, 0, 3 / 7], atol=0.015)
    squares = np.array([0.01, 0.16, 0.04, 0.09]) / 0.3
    np.testing.assert_allclose(fractions(temperature=0.5), squares, atol=0.015)
    assert fractions(temperature=0.0)[1] == 1


def test_log_likelihoods(gpt):
    texts = [PROMPT, "The baker sells the door in the tower.", ""]
    for text, actual in zip(texts, gpt.log_likelihood(texts), strict=True):
        ids = [gpt.tokenizer.cls_id, *gpt.tokenizer.encode(text).ids.tolist()]
        logs = jax.nn.log_softmax(all_scores(gpt, ids))
        expected = sum(float(logs[i, ids[i + 1]]) for i in range(len(ids) - 1))
        assert actual == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert gpt.log_likelihood([]) == []
    assert gpt.log_likelihood(texts[0]) == gpt.log_likelihood(texts[:1])[0]


def test_pseudo_log_likelihoods(pretrained):
    bert = load(pretrained)
    tokenizer = bert.tokenizer
    ids = tokenizer.encode(PROMPT).ids.tolist()
    total = 0.0
    for place, token in enumerate(ids):
        masked = [*ids[:place], tokenizer.mask_id, *ids[place + 1 :]]
        scores = all_scores(bert, [tokenizer.cls_id, *masked, tokenizer.sep_id])
        total += float(jax.nn.log_softmax(scores[place + 1])[token])
    actual = bert.pseudo_log_likelihood([PROMPT, ""])
    assert actual == [pytest.approx(total, rel=1e-4), 0.0]


def test_each_kind_of_model_refuses_what_it_cannot(gpt, pretrained):
    bert = load(pretrained)
    with pytest.raises(ValueError, match="attention=causal, but fill_mask needs bidir"):
        gpt.fill_mask("the [MASK]")
    with pytest.raises(ValueError, match="but pooling='cls' needs bidirectional"):
        gpt.embed(["a"], pooling="cls")
    with pytest.raises(ValueError, match="but pseudo_log_likelihood needs bidir"):
        gpt.pseudo_log_likelihood(["a"])
    for refused in (bert.generate, lambda: bert.log_likelihood(["a"])):
        with pytest.raises(ValueError, match="attention=bidirectional, but .* causal"):
            refused()


def test_a_vocabulary_of_characters(corpus, characters, config, tmp_path):
    tokenizer = Tokenizer.load(characters)
    text = "The judge finds a picture."
    ids = tokenizer.encode(text).ids
    assert tokenizer.kind == "char" and len(ids) == len(text) + 1  # the first space
    assert tokenizer.decode(ids) == text
    assert tokenizer.num_bytes[ids].sum() == len(text) + 1
    data = prepared(corpus, characters, tmp_path / "data")
    scores = unigram_baseline(resolve_for(config, data), data)
    loss = scores["unigram_loss"] / math.log(2)
    assert scores["unigram_bits_per_byte"] == pytest.approx(loss, rel=0.05), (
        "a token is a byte, but for [SEP]"
    )


def resolve_for(config: PretrainConfig, data: Dataset) -> PretrainConfig:
    """The configuration for another dataset."""
    settings = dataclasses.replace(config.data, path=str(data.path))
    model = dataclasses.replace(config.model, vocab_size=0)
    return resolve(dataclasses.replace(config, data=settings, model=model), data)


@pytest.mark.slow
def test_a_masked_model_starts_from_a_causal_one_and_back(run, config, tmp_path):
    masked = dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, attention="bidirectional"),
        objective="masked_lm",
        init_from=str(run[0]),
        num_steps=4,
        eval_every=4,
        checkpoint_every=4,
    )
    scores = pretrain(masked, tmp_path / "masked")
    assert scores["mlm_loss"] < np.log(config.model.vocab_size or 160)
    back = dataclasses.replace(
        config, init_from=str(tmp_path / "masked"), num_steps=4, eval_every=4
    )
    assert "clm_loss" in pretrain(back, tmp_path / "back")


@pytest.mark.slow
def test_fine_tuning_pools_the_last_token(run, tmp_path):
    table = tmp_path / "train.csv"
    lines = [f"The {name} reads.,{name}" for name in ("judge", "baker") * 24]
    table.write_text("review,who\n" + "\n".join(lines) + "\n")
    config = classifier_config(table, run[0], num_epochs=20.0)
    with pytest.raises(ValueError, match="pooling=cls cannot be used with .*causal"):
        finetune(config, tmp_path / "cls")
    last = dataclasses.replace(config, model=BertConfig(pooling="last"))
    scores = finetune(last, tmp_path / "last")
    assert scores["accuracy"] > 0.7, "by chance it is 0.5"
    label = load(tmp_path / "last").classify(["The judge reads."])[0]["label"]
    assert label == "judge"


def test_the_command(run, capsys):
    words = ["generate", "--model", str(run[0]), "--prompt", PROMPT, "--seed", "3"]
    assert main([*words, "--num-tokens", "6"]) == 0
    text = capsys.readouterr().out.strip()
    assert text.startswith("the judge writes") and len(text) > len(PROMPT)


def test_the_export_that_is_advised_can_hold_it(run, classifier):
    """transformers' BERT has no causal attention, and no vocabulary of characters."""
    assert export_form(str(run[0])) in ("onnx", "stablehlo")
    assert export_form(str(classifier)) == "huggingface"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--num-tokens 40", "the model has 40 positions. Lower num_tokens to"),
        ("--num-tokens 0", "num_tokens=0 must be at least 1"),
        ("--num-tokens 1 --prompt " + "a," * 45, "40 positions. Shorten the prompt."),
        ("--temperature -1", "temperature=-1.0 must be at least 0"),
        (
            "--temperature 1e39",
            "temperature=1e+39 must be at least 0 and at",
        ),
        ("--seed -1", "seed=-1 must be from 0"),
        ("--top-k -1", "top_k=-1 must be a whole number from 0"),
        ("--top-p 0", "top_p=0.0 must be above 0 and at most 1"),
    ],
)
def test_bad_numbers(options, message, run, refused):
    line = refused("generate", "--model", str(run[0]), *options.split())
    assert message in line


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ("--model.attention bidirectional", "objective=causal_lm cannot be learned"),
        (
            "--objective masked_lm",
            "objective=masked_lm cannot be learned",
        ),
        ("--masking.final-rate 0.1", "masking.final_rate=0.1 has no effect"),
        ("--data.path {pairs}", "data.pairs=nsp cannot be used with objective=causal"),
    ],
)
def test_what_does_not_go_together(
    changes, message, config, dataset, tmp_path, refused
):
    words = (
        f"--model.vocab-size 160 --model.attention causal --objective causal_lm "
        f"--data.path {config.data.path} --workdir {tmp_path}/run --num-steps 2 "
        "--batch-size 8 --optimizer.warmup-steps 1 "
        f"--model.max-position-embeddings 32 {changes}"
    ).format(pairs=dataset.path)
    line = refused("pretrain", *words.split())
    assert message in line
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_dry_run_tells_the_objective(config, tmp_path, capsys):
    words = (
        f"--model.vocab-size 160 --model.attention causal --objective causal_lm "
        f"--data.path {config.data.path} --num-steps 2 --batch-size 8 --dry-run "
        "--model.hidden-size 32 --model.num-attention-heads 2 --mesh.data 1 "
        "--model.num-hidden-layers 1 --model.max-position-embeddings 32 "
        "--optimizer.warmup-steps 1 --verbose"
    )
    assert main(["pretrain", *words.split()]) == 0
    output = capsys.readouterr().out
    assert "to predict: each token but the first" in output
    assert "masking rate" not in output


def test_a_text_that_is_too_long_is_named_by_its_number(pretrained):
    bert = load(pretrained)
    with pytest.raises(ValueError, match=r"text 1 has \d+ tokens, .* model takes 32"):
        bert.pseudo_log_likelihood(["a", "a " * 40])


def test_a_vocabulary_without_a_place_for_characters(corpus, tmp_path, refused):
    words = f"--input {corpus}/*.txt --kind char --vocab-size 4 --output {tmp_path}/v"
    line = refused("vocab", *words.split())
    assert "vocab_size=4 is less than the 5 special tokens" in line
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_killed_run_goes_on_bit_identically(run, config, tmp_path):
    """Only the checkpoint of step 30 is left, and a torn line after it."""
    workdir = tmp_path / "run"
    shutil.copytree(run[0], workdir)
    shutil.rmtree(workdir / "checkpoints" / "60")
    with (workdir / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"step": 61, "spl')
    pretrain(config, workdir)
    assert_same_run(workdir, run[0])


@pytest.mark.slow
def test_a_stopped_run_goes_on_bit_identically(run, config, tmp_path, monkeypatch):
    write = Report.write

    def write_and_stop(self: Report, step: int, *rest: Any) -> None:
        write(self, step, *rest)
        if step == 17:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Report, "write", write_and_stop)
        with pytest.raises(InterruptedRun, match="SIGTERM at step 17"):
            pretrain(config, tmp_path)
    assert latest_verified_step(tmp_path) == 17
    pretrain(config, tmp_path)
    assert_same_run(tmp_path, run[0])


@pytest.mark.slow
def test_a_fork_of_another_objective_sees_the_same_rows(run, rows, tmp_path, capsys):
    """Causal until step 30, then masked."""
    new = tmp_path / "new"
    words = f"fork {run[0]} --at 30 --output {new} --num-steps 32 "
    words += "--objective masked_lm --model.attention bidirectional"
    assert main(words.split()) == 0
    assert main(["pretrain", str(new / "config.json"), "--workdir", str(new)]) == 0
    lines = [x for x in logged_lines(run[0], name="examples.jsonl") if x["step"] <= 32]
    assert logged_lines(new, name="examples.jsonl") == lines and len(lines) == 32
    for line in logged_lines(new, "train"):
        assert ("mlm_loss" in line) == (line["step"] > 30) != ("clm_loss" in line)
    # What the history says of the steps before the fork is what `inspect` shows.
    capsys.readouterr()
    masked_steps = set()
    for row in lines[31]["rows"][:2]:
        one = rows.train.gather(np.array([row]))[0]
        text = rows.tokenizer.decode(one["tokens"][1 : one["end"][0] - 1].tolist())
        assert main(["inspect", str(new), "--when", text]) == 0
        for line in capsys.readouterr().out.splitlines():
            if match := re.match(r"  step (\d+), row \d+ of the batch(.*)", line):
                is_masked = "tokens predicted: [CLS] " in match[2]
                assert is_masked != ("none is masked" in match[2])
                assert is_masked == (int(match[1]) > 30)
                masked_steps |= {int(match[1])} if is_masked else set()
    assert 32 in masked_steps


def test_a_text_beyond_the_rows_of_the_training_gives_a_warning(run, gpt, tmp_path):
    assert gpt.trained_length == 32
    prompt = " ".join([PROMPT] * 11)
    message = "longer than 32 tokens, the rows that the model was last pretrained on"
    arguments = ["--model", str(run[0]), "--prompt", prompt, "--num-tokens", "2"]
    with pytest.warns(UserWarning, match=message) as warned:
        assert main(["generate", *arguments]) == 0
    assert len(warned) == 1 and "\n" not in str(warned[0].message)
    with pytest.warns(UserWarning, match=message):
        gpt.log_likelihood([prompt, "a"])
    texts, features = tmp_path / "texts.txt", tmp_path / "features.npz"
    texts.write_text(f"{prompt}\n")
    files = ["--input", str(texts), "--output", str(features)]
    with pytest.warns(UserWarning, match=message):
        assert main(["features", "--model", str(run[0]), *files]) == 0
    gpt.log_likelihood([" ".join([PROMPT] * 10)])  # 32 tokens with [CLS] and [SEP]


def test_the_exported_program_gives_the_same_probabilities(run, gpt, tmp_path):
    """The scores of `log_likelihood` from the program that `convert export` writes."""
    output = tmp_path / "program"
    words = f"convert export --to stablehlo {run[0]} --output {output}"
    assert main([*words.split(), "--sequence-length", "32"]) == 0
    program = jax.export.deserialize((output / "model.stablehlo").read_bytes())
    flat = flatten_dict(jax.device_get(gpt.params), sep="/")
    texts = [PROMPT, "The baker sells the door in the tower."]
    ids = [[gpt.tokenizer.cls_id, *row] for row in gpt.tokenizer.encode_batch(texts)]
    rows = np.array([row + [0] * (32 - len(row)) for row in ids], np.int32)
    mask = np.array([[1] * len(row) + [0] * (32 - len(row)) for row in ids], np.int32)
    scores = program.call(flat, rows, np.zeros_like(rows), mask)["token_scores"]
    logs = np.asarray(jax.nn.log_softmax(scores))
    totals = [
        sum(float(logs[i, place, token]) for place, token in enumerate(row[1:]))
        for i, row in enumerate(ids)
    ]
    assert gpt.log_likelihood(texts) == pytest.approx(totals, rel=1e-4)
