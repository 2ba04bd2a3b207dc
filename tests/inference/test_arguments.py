"""What Python callers pass by mistake: one sentence that names the argument.

In a process of its own, where types are not checked, as users have it.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_jax.inference.arguments import require_texts

SCRIPT = """
import json, sys, jax.numpy as jnp, numpy as np, bert_jax
bert, HALF = bert_jax.load(sys.argv[1]), "a \\ud83d b"
class Frame:  # as pandas's: iterated by the names of its columns, shown on two lines
    columns = ["text"]
    __iter__ = lambda self: iter(self.columns)
    __repr__ = lambda self: "  text\\n0   a"
found = []
for call in json.load(sys.stdin):
    try:
        eval(call)
        found.append(["nothing", ""])
    except Exception as error:
        found.append([type(error).__name__, str(error)])
texts = ["The judge writes.", "door"]
expected = bert.embed(texts).tolist()
same = [
    bert.embed(np.array(texts)).tolist() == expected,
    bert.embed(text for text in texts).tolist() == expected,
    bert.embed(texts, batch_size=np.int64(2)).tolist() == expected,
    bert.search(jnp.array(expected), texts, k=np.int64(1)).indices.tolist()
    == [[0], [1]]
    == bert.search(np.array(expected), texts, k=1).indices.tolist(),
    bert.search(texts, jnp.array(expected), k=np.int64(2)).indices.tolist()
    == [[0, 1], [1, 0]],
    bert.similarity(np.arange(16), texts).shape == (2,),
    bert.fill_mask(np.array(["a [MASK]"])) == bert.fill_mask(["a [MASK]"]),
    bert.next_sentence(np.array(texts), iter(texts))
    == bert.next_sentence(texts, texts),
    bert.features([]) == [] == bert.features([], layers=np.array([-1, 0])),
]
print(json.dumps({"found": found, "same": same}))
"""
REFUSED = [
    ("bert.fill_mask(None)", "text=None is of type NoneType; it must be a s"),
    ("bert.fill_mask(3)", "text=3 is of type int; it must be a str"),
    ('bert.fill_mask(b"[MASK]")', "text=.* is of type bytes"),
    ('bert.fill_mask(["[MASK]", None])', r"text\[1\]=None is of type NoneTyp"),
    ('bert.fill_mask([["[MASK]"]])', r"text\[0\]=.* is of type list"),
    ('bert.fill_mask("[MASK] " + HALF)', "half of a surrogate pair at 9"),
    ('bert.fill_mask("[MASK]", k=0)', "k=0 must be at least 1"),
    ('bert.fill_mask("[MASK]", k=-1)', "k=-1 must be at least 1"),
    ('bert.fill_mask("[MASK]", k="5")', "k='5' must be at least 1, and a wh"),
    ('bert.next_sentence("a", None)', "second=None is of type NoneType"),
    ('bert.next_sentence(["a"], "b")', "second is one string; pass a list"),
    ('bert.next_sentence(["a"], ["b", "c"])', "first has 1 texts and second has 2"),
    ("bert.embed(None)", "texts=None is of type NoneType; it must be a list"),
    ("bert.embed(7)", "texts=7 is of type int; it must be a list of texts"),
    ('bert.embed(b"a")', "texts=b'a' is of type bytes"),
    ('bert.embed({"a": 1})', "texts={'a': 1} is of type dict"),
    ('bert.embed({"a"})', "texts={'a'} is of type set"),
    ('bert.embed(["a", None])', r"texts\[1\]=None is of type NoneType"),
    ('bert.embed([["a"]])', r"texts\[0\]=\['a'\] is of type list"),
    ("bert.embed([HALF])", r"texts\[0\]=.* holds half of a surrogate pair"),
    ('bert.embed(["a"], normalize="false")', "normalize='false' must be True"),
    ("bert.classify([None])", r"texts\[0\]=None is of type NoneType"),
    ("bert.classify(None)", "texts=None is of type NoneType"),
    ('bert.classify([("a", None)])', r"texts\[0\]\[1\]=None is of type Non"),
    ('bert.classify([("a", "b", "c")])', r"texts\[0\] has 3 texts; it must"),
    ("bert.classify([()])", r"texts\[0\] has 0 texts; it must be"),
    ('bert.classify(["a", ("b", "c")])', r"texts\[1\] has 2 texts and texts"),
    ("bert.tag([3])", r"texts\[0\]=3 is of type int"),
    ('bert.tag([["a"]])', r"texts\[0\]=\['a'\] is of type list"),
    ('bert.answer(None, "a")', "question=None is of type NoneType"),
    ('bert.answer("a", ["b"])', r"context=\['b'\] is of type list"),
    ('bert.answer(["a", "b"], ["c"])', "question has 2 texts and context has 1"),
    ('bert.search("a", "b")', "corpus is one string; pass a list of them"),
    ('bert.choose(None, ["a", "b"])', "context=None is of type NoneType"),
    ('bert.choose("a", "bc")', "choices is one string; pass a list"),
    ('bert.choose("a", None)', "choices=None is of type NoneType"),
    ('bert.choose("a", ["b", 3])', r"choices\[1\]=3 is of type int"),
    ("bert.features([None])", r"texts\[0\]=None is of type NoneType"),
    ('bert.features(["a"], layers=-1)', "layers=-1 must be a list, such as"),
    ("bert.embed(Frame())", "texts=text 0 a is of type Frame; .* a column of a table"),
    ('bert.search("a", Frame())', "corpus=text 0 a is of type Frame"),
    ("bert.fill_mask(Frame())", "text=text 0 a is of type Frame; it must be a str"),
    ("bert.embed(np.array('a'))", "texts=array.* is of type ndarray"),
    ("bert.embed(np.zeros((2, 99)))", r"texts\[0\]=array.* is of type ndarray"),
    ("bert.classify(np.array([['a', 'b', 'c']]))", r"texts\[0\] has 3 texts"),
    ("bert.answer(np.array(['a', 'b']), ['c'])", "question has 2 texts and"),
    ('bert.embed(["a"], prompt=5)', "prompt=5 must be a text, or None"),
    ('bert.embed(["a"], prompt=["b"])', r"prompt=\['b'\] must be a text"),
    (
        'bert.embed(["a"], batch_size=1.5)',
        "batch_size=1.5 must be at least 1",
    ),
    ('bert.embed(["a"], batch_size=True)', "batch_size=True must be at least 1"),
    ("bert_jax.evaluate(bert, batch_size=True)", "batch_size=True must be at least 1"),
    ("bert_jax.evaluate(bert, compute_metrics=3)", "_metrics=3 must be a function"),
    ('bert_jax.pretrain("bert-tiny-128", "w")', "data.path is empty; pass --data.path"),
    ('bert_jax.finetune_runs("cola", "w", 0)', "seeds=0 must be at least 1, and"),
    ('bert_jax.load(b"a")', "path=b'a' must be a path or a name"),
    (
        'bert.similarity("a", np.full((1, 16), np.nan))',
        "b: vector 0 holds NaN or infinity",
    ),
    ('bert.generate("a", 1, temperature="x")', "temperature='x' must be a number"),
    ('bert.features(["a"], layers="last")', "layers='last' must be whole nu"),
    ('bert.features(["a"], layers=("1",))', r"layers=\('1',\) must be whole"),
]


@pytest.fixture(scope="module")
def answers(pretrained: Path) -> dict[str, Any]:
    """What became of each call."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(pretrained)],
        input=json.dumps([call for call, _ in REFUSED]),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    values: dict[str, Any] = json.loads(done.stdout)
    return values


@pytest.mark.parametrize("number", range(len(REFUSED)), ids=lambda i: REFUSED[i][0])
def test_d_arguments_of_the_wrong_type(number, answers):
    """D: refused by a ValueError of ours, in one line."""
    kind, message = answers["found"][number]
    assert kind == "ValueError", message
    assert re.search(REFUSED[number][1], message) and "\n" not in message


def test_texts_may_come_in_arrays_and_generators(answers):
    assert answers["same"] == [True] * 9


def test_texts_of_an_array_are_strings_of_python():
    """Where a task takes the values of JSON alone, NumPy's class was a KeyError."""
    assert {type(text) for text in require_texts("texts", np.array(["a"]))} == {str}
