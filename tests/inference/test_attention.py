"""The attention of a model in a text, and its web page."""

import base64
import dataclasses
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from scipy.special import erf

from bert_jax.cli.main import main
from bert_jax.inference.attention import Attention, attention, head_statistics
from bert_jax.inference.attention_page import attention_page, write_attention_page
from bert_jax.inference.predictor import Predictor, load

TEXT = "Anna saw the river and the house."
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def bert(pretrained: Path) -> Predictor:
    return load(pretrained)


def attention_of(bert: Predictor, text: str | tuple[str, str]) -> Attention:
    return attention(bert.model, text)


def dense(params, inputs):
    return inputs @ params["kernel"] + params["bias"]


def layer_norm(params, values, epsilon):
    centred = values - values.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return centred / np.sqrt(variance + epsilon) * params["scale"] + params["bias"]


def test_the_model_computes_with_this_attention(bert):
    """Each layer's hidden states follow from those before and from the attention."""
    probabilities = bert.attention(TEXT)
    num_layers, num_heads = probabilities.shape[:2]
    states = [
        bert.features([TEXT], layers=(layer,))[0].vectors
        for layer in range(num_layers + 1)
    ]
    num_tokens, epsilon = len(states[0]), bert.config.layer_norm_eps
    assert (num_layers, num_heads) == (
        bert.config.num_hidden_layers,
        bert.config.num_attention_heads,
    )
    for layer in range(num_layers):
        params = bert.params["encoder"][f"layer_{layer}"]
        own, forward, hidden = (
            params["attention"],
            params["feed_forward"],
            states[layer],
        )
        values = dense(own["value"], hidden).reshape(num_tokens, num_heads, -1)
        mixed = np.einsum("NTS,SNH->TNH", probabilities[layer], values)
        output = dense(own["output"], mixed.reshape(num_tokens, -1))
        hidden = layer_norm(own["layer_norm"], hidden + output, epsilon)
        inner = dense(forward["in"], hidden)
        inner = inner * (0.5 + 0.5 * erf(inner / np.sqrt(2)))
        output = dense(forward["out"], inner)
        hidden = layer_norm(forward["layer_norm"], hidden + output, epsilon)
        np.testing.assert_allclose(hidden, states[layer + 1], atol=1e-5)


def test_each_token_divides_its_attention(bert):
    for text in (TEXT, (TEXT, "It was old.")):
        np.testing.assert_allclose(bert.attention(text).sum(-1), 1, rtol=1e-5)
    pair = attention_of(bert, (TEXT, "It was old."))
    assert pair.is_separator.sum() == 2 and pair.tokens[0] == "[CLS]"
    assert len(pair.tokens) == pair.probabilities.shape[-1]


def test_it_does_not_depend_on_how_the_model_was_trained(bert):
    """Also by a kernel that never stores the probabilities, or recomputed."""
    config = dataclasses.replace(bert.config, attention_kernel="fused", remat="layer")
    other = Predictor(config, bert.params, bert.tokenizer)
    np.testing.assert_array_equal(other.attention(TEXT), bert.attention(TEXT))


def test_statistics_of_heads():
    first = [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    even = np.full((3, 3), 1 / 3)
    heads = np.stack([np.array(first), even])[None].astype(np.float32)
    separator = np.array([False, False, True])
    statistics = head_statistics(Attention(["[CLS]", "a", "[SEP]"], separator, heads))
    expected = {
        "to [SEP]": [0, 1 / 3],
        "to itself": [0.5 / 3, 1 / 3],
        "to the token before": [2 / 3, 2 / 9],
        "to the token after": [0.5 / 3, 2 / 9],
        "entropy": [np.log(2) / 3, np.log(3)],
    }
    assert statistics.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(statistics[name], [values], atol=1e-6)


@pytest.fixture(scope="module")
def page(pretrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "attention.html"
    words = ["inspect", str(pretrained), "--attention", "The </script> <b>river</b>."]
    assert main([*words, "--output", str(path)]) == 0
    return path


def test_a_page_is_complete_and_closed(page, bert):
    """Nothing is loaded, no text becomes HTML, and no other script may run."""
    content = page.read_text()
    assert "{{" not in content and "http:" not in content and "https:" not in content
    (data,) = re.findall(
        '<script type="application/json" id="data">(.*)</script>', content
    )
    assert "<" not in data
    (values,) = json.loads(data)["models"]
    found = attention_of(bert, "The </script> <b>river</b>.")
    assert values["tokens"] == found.tokens
    stored = np.frombuffer(base64.b64decode(values["probabilities"]), np.uint8)
    np.testing.assert_allclose(
        stored.reshape(found.probabilities.shape) / 255,
        found.probabilities,
        atol=0.5001 / 255,
    )
    for kind in ("script", "style"):
        (own,) = re.findall(f"<{kind}>(.*?)</{kind}>", content, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in content
    assert "default-src 'none'" in content


def test_the_name_of_a_model_is_text(bert, tmp_path):
    write_attention_page({"<script>a</script>": bert}, TEXT, tmp_path / "page.html")
    content = (tmp_path / "page.html").read_text()
    assert "<script>a" not in content and "&lt;script&gt;a" in content


def test_models_by_name_may_be_paths(bert, pretrained, tmp_path):
    pages = [tmp_path / "a.html", tmp_path / "b.html"]
    for model, page in zip((pretrained, bert), pages, strict=True):
        attention_page({"m": model}, TEXT, page)
    assert pages[0].read_text() == pages[1].read_text()
    with pytest.raises(ValueError, match="model={} names no model"):
        attention_page({}, TEXT, pages[0])


@pytest.fixture(scope="module")
def page_of_two(bert: Predictor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bidirectional and causal attention of the same parameters, side by side."""
    path = tmp_path_factory.mktemp("page") / "two.html"
    causal = dataclasses.replace(bert.config, attention="causal")
    gpt = Predictor(causal, bert.params, bert.tokenizer)
    write_attention_page({"bert": bert, "gpt": gpt}, TEXT, path)
    return path


def test_a_page_of_two_models_explains_what_each_token_cannot_see(page_of_two):
    (data,) = re.findall('id="data">(.*)</script>', page_of_two.read_text())
    first, second = json.loads(data)["models"]
    assert (first["name"], second["name"]) == ("bert", "gpt")
    assert first["tokens"] == second["tokens"]
    assert "attends to all tokens" in first["about"]
    assert "half above the diagonal blank" in second["about"]
    size = len(second["tokens"])
    stored = np.frombuffer(base64.b64decode(second["probabilities"]), np.uint8)
    probabilities = stored.reshape(-1, size, size)
    assert not np.triu(probabilities, 1).any() and probabilities[:, 0, 0].min() == 255
    # An even head of these tokens, of which the first sees 1 and the last sees all.
    assert second["evenly"] == f"{np.log(np.arange(1, size + 1)).mean():.2f}"
    assert first["evenly"] == f"{np.log(size):.2f}"


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_page_in_a_browser(page_of_two, bert, tmp_path):
    words = "--headless --no-sandbox --disable-gpu --no-first-run --dump-dom".split()
    quiet = "--disable-background-networking --disable-sync --disable-component-update"
    command = [str(CHROMIUM), *words, *quiet.split(), f"--user-data-dir={tmp_path}"]
    done = subprocess.run(
        [*command, page_of_two.as_uri()], capture_output=True, timeout=120
    )
    content = done.stdout.decode()
    layers, heads = bert.config.num_hidden_layers, bert.config.num_attention_heads
    assert content.count("<canvas") == 2 * (layers * heads + 1)
    assert content.count(f"Layer 1 of {layers}, head 1 of {heads}") == 2
    assert content.count(">Enlarge</button>") == content.count("<dialog") == 2
    assert re.search(r"Token 1, \[CLS\], attends to: .* \d+ %", content)
    assert "Token 1, [CLS], attends to: [CLS] (1) 100 %" in content  # causal


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--attention", "\udcff", "--output", "p.html"], "half of a surrogate pair"),
        (["--attention", "a", "--output", "p.html", "--verify"], "verify=True has no"),
        (
            ["--attention", "a text"],
            "attention='a text' needs a page to write; name it",
        ),
        (["other"], "2 paths stand side by side on a page; name it by --output"),
        (["--attention", "a", "--output", "page.txt"], "page.txt must end in .html"),
        (["--attention", "a", "--output", "no/page.html"], "no is not a directory"),
        (["--attention", "a " * 600, "--output", "p.html"], "the model takes 32"),
    ],
)
def test_bad_input(options, message, pretrained, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    line = refused("inspect", str(pretrained), *options)
    assert message in line
    assert not list(tmp_path.iterdir())


def test_a_page_too_large_for_a_browser(bert, tmp_path):
    with pytest.raises(ValueError, match="shorten the text to 14 tokens"):
        write_attention_page({"m": bert}, TEXT, tmp_path / "a.html", max_bytes=200)
    assert not list(tmp_path.iterdir())


def test_a_text_beyond_the_rows_of_the_training_gives_a_warning(bert, tmp_path):
    """In each of the ways that compute hidden states of a text."""
    model = bert.config, bert.params, bert.tokenizer
    shorter = Predictor(*model, trained_length=8)
    message = "A text is longer than 8 tokens, the rows that the model was last"
    page = tmp_path / "page.html"
    for compute in (
        shorter.attention,
        lambda text: shorter.features([text]),
        lambda text: write_attention_page({"model": shorter}, text, page),
    ):
        with pytest.warns(UserWarning, match=message):
            compute("the judge reads the letter in the tower")
        compute("the judge reads it")
