"""The web page that fills masks, computed in Chromium as by JAX."""

import html
import json
import re
import shutil
import subprocess
import unicodedata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath
from tokenizers import pre_tokenizers

from bert_jax.apps.convert.page import export_page, fill_mask_page, packed, page_leaves
from bert_jax.config import BertConfig
from bert_jax.inference.predictor import load
from bert_jax.model.bert import head_outputs, init_params, layer_attention
from bert_jax.model.inputs import Inputs
from bert_jax.pretrained import Model
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer, bert_normalizer

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]


def in_browser(page: Path, folder: Path, fragment: str = "") -> str:
    """The document of a page, after all of its scripts."""
    words = "--headless --no-sandbox --disable-gpu --no-first-run --dump-dom".split()
    quiet = "--disable-background-networking --disable-sync --disable-component-update"
    # The document is written when nothing is left to do, not when it is loaded.
    wait = "--virtual-time-budget=30000"
    command = [str(CHROMIUM), *words, *quiet.split(), wait, f"--user-data-dir={folder}"]
    address = page.as_uri() + fragment
    done = subprocess.run([*command, address], capture_output=True, timeout=120)
    return done.stdout.decode()


def test_a_page_in_a_browser(pretrained, tmp_path):
    """As it is, its policy included; the newest checkpoint is shown first."""
    page = tmp_path / "page.html"
    export_page(str(pretrained), page, steps=(8, 10))
    text = "The judge [MASK] the [MASK] in the tower."
    content = in_browser(page, tmp_path, f"#{text}")
    bert = load(pretrained)
    assert content.count("<canvas") == 2 and "Layer 1 of 1, head 1 of 1" in content
    assert "step 10 (2 of 2)" in content
    tables = re.findall(r"<table><caption>(.*?)</table>", content)
    assert [table.split("<")[0] for table in tables] == [
        "[MASK] 1, token 4",
        "[MASK] 2, token 6",
    ]
    ((_, places, scores, _),) = jax_outputs(bert, [text])
    order = np.argsort(-scores[0], kind="stable")[:10]
    percents = [f"{100 * value:.1f} %" for value in jax.nn.softmax(scores[0])[order]]
    assert re.findall("<tr><td>(.*?)</td>", tables[0]) == bert.tokenizer.tokens(order)
    assert re.findall("<td>([^<]* %)</td></tr>", tables[0]) == percents
    assert places == [3, 5]
    assert re.search(r"Token 4, \[MASK\], attends to: .* \d+ %", content)
    long = in_browser(page, tmp_path, "#" + "judge%20" * 31)
    assert "The text has 33 tokens, [CLS] and [SEP] included; the page takes" in long


CHANGE = """<pre id="before"></pre><script>
document.getElementById("before").textContent = textbox.value;
location.hash = "#the%20door [MASK]";
</script></body>"""


def test_the_text_of_the_address(pretrained, tmp_path):
    """A % that no digits follow is shown as it is; a new text after the # is read."""
    page = tmp_path / "page.html"
    export_page(str(pretrained), page)
    content = in_browser(page, tmp_path, "#the 50% of [MASK]")
    assert "<caption>[MASK] 1, token" in content
    # Without the policy, which would forbid the test's own script.
    content = re.sub('<meta http-equiv="Content.*?>', "", page.read_text())
    page.write_text(content.replace("</body>", CHANGE))
    content = in_browser(page, tmp_path, "#50% [MASK] 50%")
    (before,) = re.findall('<pre id="before">(.+?)</pre>', content)
    assert before.replace("%20", " ") == "50% [MASK] 50%"
    assert re.findall("<button[^>]*>([^<]+)</button>", content)[-5:] == [
        *("[CLS]", "the", "door", "[MASK]", "[SEP]")
    ]


def jax_outputs(
    bert: Any, texts: list[str]
) -> list[tuple[list[int], list[int], np.ndarray, np.ndarray]]:
    """For each text ids, places of masks, the scores there, and all attention."""
    tokenizer = bert.tokenizer
    ids = [tokenizer.encode(text, mask_token=True).ids.tolist() for text in texts]
    ids = [[tokenizer.cls_id, *inner, tokenizer.sep_id] for inner in ids]
    rows = np.zeros((len(ids), max(map(len, ids))), np.int32)
    mask = np.zeros(rows.shape, bool)
    for index, row in enumerate(ids):
        rows[index, : len(row)], mask[index, : len(row)] = row, True
    inputs = Inputs(jnp.array(rows), jnp.zeros_like(rows), jnp.array(mask))

    @jax.jit
    def outputs(params: Any) -> Any:
        scores = head_outputs(bert.config, params, inputs)["token_scores"]
        return scores, layer_attention(bert.config, params, inputs)

    scores, shares = map(np.asarray, outputs(bert.params))
    found = []
    for index, row in enumerate(ids):
        places = [place for place, i in enumerate(row) if i == tokenizer.mask_id]
        attention = shares[index, :, :, : len(row), : len(row)]
        found.append((row, places, scores[index, places], attention))
    return found


TEXTS = [
    "[MASK]",
    "the cat [MASK] on the mat",
    "The Cafe\u0301 CAF\u00c9 [MASK], caf\u00e9s!? it's well-known.",
    "[MASK][MASK]s unable\u4e2d\u6587cat [CLS] [mask] [SEP] [MASK].",
    "\u039f\u0394\u039f\u03a3 \u03a3 \u0130stanbul \ud55c\uad6d \uff21\u3002 \ufb01",
    "zzz \u2603 q $5+3=8 a_b \u201cx\u201d y\u2026 \u00a0\u3000\u200bcat\x00\t[MASK]",
    "a" * 201 + " " + "b" * 200 + " [MASK]",
    "",
    " ".join(["cat"] * 61) + " [MASK]",
]


def tokenizer_of(cased: bool, **rules: bool | int) -> Tokenizer:
    characters = sorted(
        {c for text in TEXTS for c in text + text.lower() if c.isalnum()}
        | set(".,!?'-$+=_[]\u201c\u201d\u2026\u3002\u0301")
    )
    words = "the cat ##s on mat cafe caf\u00e9 un ##able CAF\u00c9".split()
    words += ["b" * 100, "##" + "b" * 100]
    pieces = [*characters, *(f"##{c}" for c in characters if c not in "zq"), *words]
    # The special tokens have other ids than in vocabularies trained here.
    lines = dict.fromkeys([*pieces[:7], *SPECIAL_TOKENS, *pieces])
    config = {"kind": "wordpiece", "cased": cased, **rules}
    return Tokenizer(config, "\n".join(lines).encode())


def model_of(tokenizer: Tokenizer, **fields: Any) -> Model:
    """A model whose outputs are far from even, as a trained one's."""
    sizes = {"num_attention_heads": 4, "vocab_size": tokenizer.vocab_size}
    config = BertConfig.miniature(
        3, 32, **sizes, max_position_embeddings=80, initializer_range=0.3, **fields
    )
    params = jax.jit(lambda key: init_params(config, key))(jax.random.key(1))
    generator = np.random.default_rng(1)
    # Biases and scales that are not zero and one.
    params = jax.tree.map(
        lambda leaf: np.float32(leaf + generator.normal(0, 0.1, leaf.shape)), params
    )
    directory = epath.Path("model")
    return Model(
        config=config,
        params=params,
        tokenizer=tokenizer,
        pairs="nsp",
        directory=directory,
        imported=True,
        embedding=None,
        sources=(),
    )


def evaluated(model: Model, expression: str, folder: Path) -> Any:
    """The JSON value of an expression of the page's own functions, in Chromium."""
    checkpoint = {"name": "model", "weights": packed(page_leaves(model))}
    content = fill_mask_page("model", model, [checkpoint])
    # The policy would forbid the test's own script.
    content = re.sub('<meta http-equiv="Content-Security-Policy".*?>', "", content)
    script = (
        '<pre id="result"></pre><script>'
        f"(async () => JSON.stringify({expression}))().catch(String).then("
        'text => { document.getElementById("result").textContent = text; })'
        "</script></body>"
    )
    (folder / "test.html").write_text(content.replace("</body>", script))
    done = in_browser(folder / "test.html", folder)
    (result,) = re.findall('<pre id="result">(.+?)</pre>', done, re.DOTALL)
    return json.loads(html.unescape(result))


@pytest.mark.parametrize(
    ("tokenizer", "fields"),
    [
        (tokenizer_of(False), {"hidden_act": "gelu"}),
        (tokenizer_of(True), {"hidden_act": "gelu_new", "layer_norm_eps": 1e-3}),
        (
            tokenizer_of(
                False,
                strip_accents=False,
                tokenize_chinese_chars=False,
                max_input_chars_per_word=7,
            ),
            {"hidden_act": "relu", "head": "masked_lm"},
        ),
    ],
    ids=["uncased", "cased", "other-rules"],
)
def test_it_computes_as_jax(tokenizer, fields, tmp_path):
    model = model_of(tokenizer, **fields)
    results = evaluated(
        model,
        f"""await loadTensors(0).then(tensors => {json.dumps(TEXTS)}.map(text => {{
          const {{ ids, attention, fillings }} = fillMask(text, tensors);
          return [ids, Array.from(attention), fillings.map(filling => [
            filling.place, Array.from(filling.probabilities),
            Array.from(filling.scores)])];
        }}))""",
        tmp_path,
    )
    largest, close = 0.0, {"rtol": 0, "atol": 1e-4}
    for (ids, attention, fillings), (own_ids, places, scores, shares) in zip(
        results, jax_outputs(model, TEXTS), strict=True
    ):
        assert ids == own_ids
        assert [place for place, *_ in fillings] == places
        np.testing.assert_allclose(np.reshape(attention, shares.shape), shares, **close)
        for filling, expected in zip(fillings, scores, strict=True):
            np.testing.assert_allclose(filling[1], jax.nn.softmax(expected), **close)
            np.testing.assert_allclose(filling[2], expected, **close)
            largest = max(largest, *filling[1])
    assert largest > 0.2  # else all could be even, and equal for that


def test_it_splits_words_as_the_tokenizer(tmp_path):
    """Around every character of Unicode 3.2 in the first plane; of letters without
    case, such as ideographs, around every 16th.

    The library has the categories of Unicode 8, and a browser those of today.
    """
    old = unicodedata.ucd_3_2_0.category
    points = [
        point
        for point in range(0x10000)
        if unicodedata.category(chr(point)) == old(chr(point)) not in ("Cn", "Cs", "Co")
        and (old(chr(point)) != "Lo" or point % 16 == 0)
    ]
    assert len(points) > 8_000
    both = evaluated(
        model_of(tokenizer_of(cased=True)),
        f"""[true, false].map(cased => {json.dumps(points)}.map(point => basicWords(
          `a${{String.fromCodePoint(point)}}b`,
          {{ cased, stripAccents: !cased, chinese: true }}).join(" ")))""",
        tmp_path,
    )
    splitter = pre_tokenizers.BertPreTokenizer()
    for cased, words in zip((True, False), both, strict=True):
        normalizer = bert_normalizer(cased)
        for point, found in zip(points, words, strict=True):
            text = normalizer.normalize_str(f"a{chr(point)}b")
            expected = " ".join(word for word, _ in splitter.pre_tokenize_str(text))
            assert found == expected, hex(point)
