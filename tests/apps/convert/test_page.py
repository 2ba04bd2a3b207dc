"""The web page that fills masks: its data, and what is refused."""

import base64
import dataclasses
import hashlib
import html
import json
import re
import zlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from etils import epath
from flax.traverse_util import flatten_dict

from bert_jax.apps.convert.page import export_page, fill_mask_page, packed, page_leaves
from bert_jax.apps.convert.receipts import write_imported
from bert_jax.cli.main import main
from bert_jax.config import BertConfig
from bert_jax.formats.imported import Imported
from bert_jax.model.bert import init_params
from bert_jax.pretrained import load_pretrained
from bert_jax.tokenization import Tokenizer


def data_of(content: str) -> dict[str, Any]:
    pattern = '<script type="application/json" id="data">(.*)</script>'
    (data,) = re.findall(pattern, content)
    assert "<" not in data
    values: dict[str, Any] = json.loads(data)
    return values


def unpacked(weights: str) -> np.ndarray:
    """The float32 values, as the page reads them."""
    planes = np.frombuffer(zlib.decompress(base64.b64decode(weights)), np.uint8)
    return np.ascontiguousarray(planes.reshape(4, -1).T).view("<f4").ravel()


@pytest.fixture(scope="module")
def page(pretrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with both checkpoints of the small run."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    command = ["convert", "export", "--to", "page", str(pretrained)]
    assert main([*command, "--steps", "10", "8", "--output", str(path)]) == 0
    return path


def test_a_page_holds_the_parameters_exactly(page, pretrained):
    values = data_of(page.read_text())
    assert [checkpoint["name"] for checkpoint in values["checkpoints"]] == [
        "step 8",
        "step 10",
    ]
    for step, checkpoint in zip((8, 10), values["checkpoints"], strict=True):
        model = load_pretrained(str(pretrained / "checkpoints" / str(step)))
        params = flatten_dict(model.params, sep="/")
        weights, start = unpacked(checkpoint["weights"]), 0
        for name, size in values["sizes"]:
            # One text has the first segment only.
            whole = params.pop(name)
            expected = whole[:1] if name.endswith("segment/embedding") else whole
            stored = weights[start : start + size]
            assert stored.tobytes() == expected.tobytes()
            start += size
        assert start == len(weights)
        # What is left is of the other heads.
        assert {name.split("/")[0] for name in params} == {"pooler", "next_sentence"}
    assert values["vocabulary"] == model.tokenizer.tokens(range(160))


def test_a_page_is_complete_and_closed(page):
    """Nothing is loaded, and no other script or style may run."""
    content = page.read_text()
    assert "{{" not in content and "http:" not in content and "https:" not in content
    for kind in ("script", "style"):
        (own,) = re.findall(f"<{kind}>(.*?)</{kind}>", content, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in content
    assert "default-src 'none'" in content


def test_the_order_of_the_steps_has_no_effect(page, pretrained, tmp_path):
    export_page(str(pretrained), tmp_path / "page.html", steps=(8, 10))
    assert (tmp_path / "page.html").read_bytes() == page.read_bytes()


def test_names_and_tokens_are_text(pretrained):
    model = load_pretrained(str(pretrained))
    hostile = "</script><script>alert(1)</script>"
    vocabulary = model.tokenizer.files["vocab.txt"].decode().splitlines()
    vocabulary[-1] = hostile
    files = "\n".join(vocabulary).encode()
    tokenizer = Tokenizer(model.tokenizer.config, files)
    model = dataclasses.replace(model, tokenizer=tokenizer)
    checkpoint = {"name": hostile, "weights": packed(page_leaves(model))}
    content = fill_mask_page(hostile, model, [checkpoint])
    assert "<script>alert" not in content
    assert html.escape(hostile) in content
    assert data_of(content)["vocabulary"][-1] == hostile


def test_a_page_of_the_demos_size_is_at_most_5_megabytes():
    """Normal weights; those of a trained model take as much (docs/interop.md)."""
    config = BertConfig.tiny(
        vocab_size=4096, max_position_embeddings=64, initializer_range=0.05
    )
    drawn = jax.eval_shape(lambda key: init_params(config, key), jax.random.key(0))
    generator = np.random.default_rng(0)
    leaves = {
        name: generator.normal(0, 0.05, leaf.shape).astype(np.float32)
        for name, leaf in flatten_dict(drawn, sep="/").items()
        if name.startswith(("encoder", "masked_lm"))
    }
    assert len(packed(leaves)) < 4_700_000


def write_model(
    folder: Path, config: BertConfig, tokenizer: Tokenizer, head: str = ""
) -> Path:
    """A checkpoint with random parameters; `head`: the one that is left out."""
    params = jax.jit(lambda key: init_params(config, key))(jax.random.key(3))
    params = {name: leaf for name, leaf in params.items() if name != head}
    arrays = jax.tree.map(np.asarray, params)
    write_imported(
        Imported(config, arrays, tokenizer, (), (), (), ()), epath.Path(folder)
    )
    return folder


def test_refused_models(pretrained, encoder_checkpoint, corpus, tmp_path):
    model = load_pretrained(str(pretrained))
    causal = dataclasses.replace(model.config, attention="causal")
    config = {**model.tokenizer.config, "added_tokens": [{"content": "xyz"}]}
    added = Tokenizer(config, model.tokenizer.files["vocab.txt"])
    larger = dataclasses.replace(model.config, vocab_size=added.vocab_size)
    arguments = ["--input", str(corpus / "*.txt"), "--kind", "bpe"]
    output = ["--vocab-size", "160", "--output", str(tmp_path / "bpe")]
    assert main(["vocab", *arguments, *output]) == 0
    pieces = Tokenizer.load(tmp_path / "bpe")
    for path, message in {
        write_model(tmp_path / "causal", causal, model.tokenizer): "attention=causal",
        encoder_checkpoint: "no masked_lm head",
        write_model(tmp_path / "added", larger, added): "added tokens, such as 'xyz'",
        write_model(tmp_path / "pieces", model.config, pieces): "of kind bpe",
    }.items():
        with pytest.raises(ValueError, match=message):
            export_page(str(path), tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_too_large(pretrained, tmp_path):
    size = sum(leaf.nbytes for leaf in page_leaves_of(pretrained).values())
    output = tmp_path / "page.html"
    with pytest.raises(ValueError, match="use a smaller model"):
        export_page(str(pretrained), output, max_bytes=size - 1)
    with pytest.raises(ValueError, match="give at most 1 of the steps"):
        export_page(str(pretrained), output, steps=(8, 10), max_bytes=2 * size - 1)
    assert not list(tmp_path.iterdir())
    export_page(str(pretrained), output, max_bytes=size)


def test_a_page_takes_the_rows_of_the_training(pretrained):
    """Later positions of the model were not trained."""
    model = load_pretrained(str(pretrained))
    longer = dataclasses.replace(model.config, max_position_embeddings=60)
    params = jax.jit(lambda key: init_params(longer, key))(jax.random.key(3))
    params = jax.tree.map(np.asarray, params)
    for trained_length, max_tokens in ((32, 32), (0, 60), (128, 60)):
        trained = {"params": params, "trained_length": trained_length}
        changed = dataclasses.replace(model, config=longer, **trained)
        content = fill_mask_page("model", changed, [])
        assert data_of(content)["maxTokens"] == max_tokens
        assert f"at most {max_tokens} tokens" in content
        position = page_leaves(changed)["encoder/embeddings/position/embedding"]
        assert len(position) == max_tokens


def test_a_large_model_is_refused_before_it_is_read(tmp_path):
    """By its configuration alone: there are no parameters in its files."""
    sizes = {"num_hidden_layers": 12, "hidden_size": 768, "intermediate_size": 3072}
    (tmp_path / "config.json").write_text(json.dumps(sizes | {"vocab_size": 30522}))
    (tmp_path / "model.safetensors").write_bytes(b"")
    message = "would hold 433.5 MB .* use a smaller model"
    with pytest.raises(ValueError, match=message):
        export_page(str(tmp_path), tmp_path / "page.html")


def page_leaves_of(path: Path) -> dict[str, np.ndarray]:
    return page_leaves(load_pretrained(str(path)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--output", "page"], "page must end in .html"),
        (["--output", "no/page.html"], "no is not a directory"),
        (["--output", "p.html", "--steps", "8", "9"], "of step 9; it has those of 8"),
        (["--output", "p.html", "--steps", "8", "8"], "a step twice, in 8, 8"),
        (["--output", "p.html", "--batch-size", "1"], "batch_size=1 needs --to"),
    ],
)
def test_bad_options(options, message, pretrained, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    line = refused("convert", "export", "--to", "page", str(pretrained), *options)
    assert message in line
    assert not list(tmp_path.iterdir())


def test_steps_are_only_for_a_page(pretrained, tmp_path, refused):
    command = ["convert", "export", "--to", "stablehlo", str(pretrained), "--steps"]
    assert "steps=(8,) needs --to page" in refused(
        *command, "8", "--output", str(tmp_path / "program")
    )
