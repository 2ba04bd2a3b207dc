"""Checkpoints of the TensorFlow code of 2018, written here under its own names."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath

from bert_jax.apps.convert.receipts import write_imported
from bert_jax.formats.names import names_of
from bert_jax.formats.tf1 import find_prefix, is_tf1, read_tf1
from bert_jax.inference.predictor import load
from bert_jax.model.bert import head_outputs
from bert_jax.model.inputs import Inputs
from bert_jax.storage.quiet_tensorflow import quiet_tensorflow

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the judge reads a book ##s .".split()
D, F, T = 16, 24, 20
CONFIG = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": D,
    "initializer_range": 0.02,
    "intermediate_size": F,
    "max_position_embeddings": T,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "type_vocab_size": 2,
    "vocab_size": len(WORDS),
}
ENCODER = {
    "bert/embeddings/word_embeddings": (len(WORDS), D),
    "bert/embeddings/token_type_embeddings": (2, D),
    "bert/embeddings/position_embeddings": (T, D),
    "bert/embeddings/LayerNorm/beta": (D,),
    "bert/embeddings/LayerNorm/gamma": (D,),
    "bert/pooler/dense/kernel": (D, D),
    "bert/pooler/dense/bias": (D,),
} | {
    f"bert/encoder/layer_{i}/{name}": shape
    for i in range(2)
    for name, shape in {
        "attention/self/query/kernel": (D, D),
        "attention/self/query/bias": (D,),
        "attention/self/key/kernel": (D, D),
        "attention/self/key/bias": (D,),
        "attention/self/value/kernel": (D, D),
        "attention/self/value/bias": (D,),
        "attention/output/dense/kernel": (D, D),
        "attention/output/dense/bias": (D,),
        "attention/output/LayerNorm/beta": (D,),
        "attention/output/LayerNorm/gamma": (D,),
        "intermediate/dense/kernel": (D, F),
        "intermediate/dense/bias": (F,),
        "output/dense/kernel": (F, D),
        "output/dense/bias": (D,),
        "output/LayerNorm/beta": (D,),
        "output/LayerNorm/gamma": (D,),
    }.items()
}
PREDICTIONS = {
    "cls/predictions/transform/dense/kernel": (D, D),
    "cls/predictions/transform/dense/bias": (D,),
    "cls/predictions/transform/LayerNorm/beta": (D,),
    "cls/predictions/transform/LayerNorm/gamma": (D,),
    "cls/predictions/output_bias": (len(WORDS),),
}
RELATIONSHIP = {
    "cls/seq_relationship/output_weights": (2, D),
    "cls/seq_relationship/output_bias": (2,),
}
PRETRAINING = ENCODER | PREDICTIONS | RELATIONSHIP
CLASSIFIER = {"output_weights": (3, D), "output_bias": (3,)}
SQUAD = {"cls/squad/output_weights": (2, D), "cls/squad/output_bias": (2,)}

Tensors = dict[str, np.ndarray]


def draw(shapes: dict[str, tuple[int, ...]]) -> Tensors:
    """Values of which no two tensors share any, and the optimizer's beside them."""
    generator = np.random.default_rng(0)
    tensors: Tensors = {"global_step": np.array(1000, np.int64)}
    for name, shape in shapes.items():
        tensors[name] = generator.normal(0, 0.1, shape).astype(np.float32)
        tensors[f"{name}/adam_m"] = np.full(shape, 7.0, np.float32)
        tensors[f"{name}/adam_v"] = np.full(shape, 8.0, np.float32)
    return tensors


def write(folder: Path, tensors: Tensors, stem: str = "bert_model.ckpt") -> Path:
    """A directory as the original code leaves it."""
    tf = quiet_tensorflow()
    folder.mkdir(parents=True, exist_ok=True)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, values in tensors.items():
            tf.compat.v1.get_variable(name, initializer=values, use_resource=False)
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, str(folder / stem))
    (folder / "bert_config.json").write_text(json.dumps(CONFIG))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return folder


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tensors]:
    """A pretraining checkpoint, and what was written into it."""
    tensors = draw(PRETRAINING)
    folder = tmp_path_factory.mktemp("tf1") / "uncased_L-2_H-16_A-2"
    return write(folder, tensors), tensors


@pytest.fixture
def copy(written: tuple[Path, Tensors], tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(written[0], tmp_path / written[0].name))


def leaf(params: dict, path: str) -> np.ndarray:
    for part in path.split("/"):
        params = params[part]
    return params


def transposed(tf1: str) -> bool:
    return tf1.endswith("output_weights")


HEADS = {
    "pretraining": PRETRAINING,
    "masked_lm": ENCODER | PREDICTIONS,
    "encoder": ENCODER,
    "sequence_classification": ENCODER | CLASSIFIER,
    "question_answering": ENCODER | SQUAD,
}


@pytest.mark.parametrize("head", HEADS)
def test_every_leaf_is_what_was_written(tmp_path, head):
    tensors = draw(HEADS[head])
    imported = read_tf1(epath.Path(write(tmp_path / "cased_x", tensors)))
    assert imported.config.head == head
    labels = ("LABEL_0", "LABEL_1", "LABEL_2") if "class" in head else ()
    assert imported.config.labels == labels
    sources = {one.target: one.source for one in imported.leaves}
    assert set(sources) == {name.ours for name in names_of(imported.config)}
    for ours, theirs in sources.items():
        expected = tensors[theirs].T if transposed(theirs) else tensors[theirs]
        np.testing.assert_array_equal(leaf(imported.params, ours), expected, ours)
    assert {*sources.values(), *imported.left_over} == set(tensors)
    unseen = {name for name in imported.left_over if not name.endswith(("_m", "_v"))}
    pooler = {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}
    sees_pooler = head not in ("masked_lm", "question_answering")
    assert unseen == {"global_step"} | (set() if sees_pooler else pooler)
    assert imported.tokenizer.cased


def layer_norm(x: np.ndarray, tensors: Tensors, name: str) -> np.ndarray:
    scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
    return scaled * tensors[f"{name}/gamma"] + tensors[f"{name}/beta"]


def dense(x: np.ndarray, tensors: Tensors, name: str) -> np.ndarray:
    return x @ tensors[f"{name}/kernel"] + tensors[f"{name}/bias"]


def gelu(x: np.ndarray) -> np.ndarray:
    from scipy.special import erf

    return x * 0.5 * (1 + erf(x / np.sqrt(2)))


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def original_forward(
    t: Tensors, ids: np.ndarray, segments: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """modeling.py and run_pretraining.py of the original, in float64, one row."""
    t = {name: values.astype(np.float64) for name, values in t.items()}
    base = "bert/embeddings"
    x = t[f"{base}/word_embeddings"][ids] + t[f"{base}/token_type_embeddings"][segments]
    x = x + t[f"{base}/position_embeddings"][: len(ids)]
    x = layer_norm(x, t, f"{base}/LayerNorm")
    for i in range(2):
        layer = f"bert/encoder/layer_{i}"
        query, key, value = (
            dense(x, t, f"{layer}/attention/self/{part}").reshape(len(ids), 2, D // 2)
            for part in ("query", "key", "value")
        )
        scores = np.einsum("TNH,SNH->NTS", query, key) / np.sqrt(D // 2)
        mixed = np.einsum("NTS,SNH->TNH", softmax(scores), value).reshape(len(ids), D)
        attended = dense(mixed, t, f"{layer}/attention/output/dense")
        x = layer_norm(x + attended, t, f"{layer}/attention/output/LayerNorm")
        inner = gelu(dense(x, t, f"{layer}/intermediate/dense"))
        output = dense(inner, t, f"{layer}/output/dense")
        x = layer_norm(x + output, t, f"{layer}/output/LayerNorm")
    head = gelu(dense(x, t, "cls/predictions/transform/dense"))
    head = layer_norm(head, t, "cls/predictions/transform/LayerNorm")
    tokens = head @ t[f"{base}/word_embeddings"].T + t["cls/predictions/output_bias"]
    pooled = np.tanh(dense(x[0], t, "bert/pooler/dense"))
    pair = pooled @ t["cls/seq_relationship/output_weights"].T
    return tokens, pair + t["cls/seq_relationship/output_bias"]


def test_forward_is_that_of_the_original(written):
    folder, tensors = written
    imported = read_tf1(epath.Path(folder))
    ids = np.array([2, 5, 6, 4, 3, 8, 9, 10, 3])
    segments = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1])
    inputs = jnp.array(ids[None]), jnp.array(segments[None]), jnp.ones((1, 9), bool)
    ours = head_outputs(
        imported.config, jax.device_put(imported.params), Inputs(*inputs)
    )
    tokens, pair = original_forward(tensors, ids, segments)
    assert np.ptp(tokens) > 0.1 and np.ptp(pair) > 0.001
    # Our arithmetic is float32, and the scores are of order 1.
    np.testing.assert_allclose(ours["token_scores"][0], tokens, rtol=0, atol=1e-5)
    np.testing.assert_allclose(ours["pair_scores"][0], pair, rtol=0, atol=1e-5)


def test_a_written_import_loads(written, tmp_path):
    imported = read_tf1(epath.Path(written[0]))
    output = epath.Path(tmp_path / "checkpoint")
    write_imported(imported, output)
    receipt = json.loads((output / "conversion.json").read_text())
    assert [entry["path"] for entry in receipt["sources"]] == [
        "bert_config.json",
        "bert_model.ckpt.data-00000-of-00001",
        "bert_model.ckpt.index",
        "vocab.txt",
    ]
    assert len(receipt["tensors"]) == len(PRETRAINING)
    assert "global_step" in receipt["left_over"]
    bert = load(output)
    assert not bert.tokenizer.cased
    assert len(bert.fill_mask("The judge [MASK] a book.", k=2)) == 2
    np.testing.assert_array_equal(
        np.asarray(bert.params["encoder"]["embeddings"]["token"]["embedding"]),
        written[1]["bert/embeddings/word_embeddings"],
    )


def test_which_checkpoint_a_path_means(written, tmp_path):
    folder = tmp_path / "uncased_run"
    for step in (9, 10):
        write(folder, draw(ENCODER), f"model.ckpt-{step}")
    assert find_prefix(epath.Path(folder)).name == "model.ckpt-10"
    (folder / "checkpoint").write_text('model_checkpoint_path: "/gone/model.ckpt-9"\n')
    assert find_prefix(epath.Path(folder)).name == "model.ckpt-9"
    (folder / "checkpoint").unlink()
    assert find_prefix(epath.Path(folder)).name == "model.ckpt-10"
    for ending in ("", ".index", ".meta", ".data-00000-of-00001"):
        one = epath.Path(folder / f"model.ckpt-9{ending}")
        assert find_prefix(one).name == "model.ckpt-9"
    assert read_tf1(epath.Path(folder / "model.ckpt-9")).config.head == "encoder"
    assert is_tf1(epath.Path(folder)) and not is_tf1(epath.Path(tmp_path))


def test_a_float16_checkpoint_is_widened(tmp_path):
    tensors = {
        name: values.astype(np.float16)
        for name, values in draw(ENCODER).items()
        if name in ENCODER
    }
    imported = read_tf1(epath.Path(write(tmp_path / "cased", tensors)))
    table = leaf(imported.params, "encoder/embeddings/token/embedding")
    assert table.dtype == np.float32
    np.testing.assert_array_equal(table, tensors["bert/embeddings/word_embeddings"])
    assert {one.dtype for one in imported.leaves} == {"float16"}


@pytest.mark.parametrize(
    ("name", "content", "cased"),
    [
        ("uncased_L-12", None, False),
        ("multi_cased_L-12", None, True),
        ("model", {"do_lower_case": True}, False),
        ("uncased_model", {"do_lower_case": False}, True),
        ("model", {"kind": "wordpiece", "cased": True}, True),
    ],
)
def test_casing(written, tmp_path, name, content, cased):
    folder = Path(shutil.copytree(written[0], tmp_path / name))
    if content:
        (folder / "tokenizer_config.json").write_text(json.dumps(content))
    assert read_tf1(epath.Path(folder)).tokenizer.cased == cased


def altered(**values: object) -> Callable[[Path], object]:
    """Rewrites bert_config.json; None removes a key."""
    kept = {k: v for k, v in (CONFIG | values).items() if v is not None}
    return lambda folder: (folder / "bert_config.json").write_text(json.dumps(kept))


def cut(name: str, size: int) -> Callable[[Path], object]:
    """Keeps the first `size` bytes of a file."""

    def do(folder: Path) -> None:
        path = folder / name
        path.write_bytes(path.read_bytes()[:size])

    return do


def flip(folder: Path) -> None:
    path = folder / "bert_model.ckpt.data-00000-of-00001"
    content = bytearray(path.read_bytes())
    # Every fourth byte, so that a tensor which is read is among them.
    content[::4] = bytes(byte ^ 1 for byte in content[::4])
    path.write_bytes(content)


def remove(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def vocabulary(*words: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "vocab.txt").write_text("\n".join(words))


BAD = {
    "cut data": (
        cut("bert_model.ckpt.data-00000-of-00001", 100),
        "bert_model.ckpt.data-00000-of-00001 is damaged: .* cannot be read",
    ),
    "flipped data": (flip, "data-00000-of-00001 is damaged: .*Checksum"),
    "no data": (
        remove("bert_model.ckpt.data-00000-of-00001"),
        "data-00000-of-00001 is missing; put it beside .index",
    ),
    "cut index": (
        cut("bert_model.ckpt.index", 200),
        "bert_model.ckpt.index is damaged or no TensorFlow checkpoint",
    ),
    "empty index": (cut("bert_model.ckpt.index", 0), "bert_model.ckpt.index is dam"),
    "no index": (remove("bert_model.ckpt.index"), r"holds no \*.index file"),
    "no config": (remove("bert_config.json"), "bert_config.json is missing; copy it"),
    "cut config": (cut("bert_config.json", 30), "bert_config.json is not JSON"),
    "config lacks": (altered(type_vocab_size=None), "json lacks type_vocab_size"),
    "other width": (
        altered(intermediate_size=32),
        "layer_0/intermediate/dense/kernel is 16x24, not 16x32.*layer_1",
    ),
    "other depth": (
        altered(num_hidden_layers=3),
        "says num_hidden_layers=3 and there are tensors of 2 layers",
    ),
    "other act": (altered(hidden_act="tanh"), "hidden_act='tanh' must be one of gelu"),
    "heads": (altered(num_attention_heads=3), "json: hidden_size=16 is not a multiple"),
    "no vocabulary": (remove("vocab.txt"), "vocab.txt is missing; copy it"),
    "short vocabulary": (vocabulary(*WORDS[:-1]), "has 11 tokens and the table .* 12"),
    "no [MASK]": (vocabulary(*WORDS[:4], "x", *WORDS[5:]), r"vocab.txt: lacks \[MASK"),
    "brackets": (
        lambda folder: folder.rename(folder.with_name("uncased [2]")),
        r"bert_model.ckpt has one of \[\]\*\? in its path",
    ),
    "no casing": (
        lambda folder: folder.rename(folder.with_name("model")),
        "nothing says whether the vocabulary is cased",
    ),
    "two casings": (
        lambda folder: folder.rename(folder.with_name("cased_or_uncased")),
        "nothing says whether the vocabulary is cased",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused_in_one_line(copy, case):
    damage, message = BAD[case]
    damage(copy)
    [folder] = copy.parent.iterdir()
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        read_tf1(epath.Path(folder))
    assert "\n" not in str(caught.value)


def refused(folder: Path, tensors: Tensors, message: str) -> str:
    with pytest.raises(ValueError, match=message) as caught:
        read_tf1(epath.Path(write(folder / "uncased", tensors)))
    return str(caught.value)


def test_all_missing_tensors_are_named(tmp_path):
    tensors = draw(PRETRAINING)
    gone = {
        "cls/seq_relationship/output_bias",
        "bert/encoder/layer_1/output/dense/bias",
    }
    tensors = {name: tensors[name] for name in tensors if name not in gone}
    message = refused(tmp_path, tensors, "bert_model.ckpt lacks .*head pretraining")
    assert gone <= set(re.findall(r"[\w/]+", message))


def test_extra_tensors_are_named_or_left_aside(tmp_path):
    tensors = draw(PRETRAINING) | {"cls/other/w": np.zeros(3, np.float32)}
    refused(tmp_path, tensors, "holds cls/other/w, which.*--allow-extra")
    imported = read_tf1(epath.Path(tmp_path / "uncased"), allow_extra=True)
    assert "cls/other/w" in imported.left_over
    assert imported.config.head == "pretraining"


def test_wrong_shapes_dtypes_and_values_are_named(tmp_path):
    tensors = draw(PRETRAINING)
    name = "bert/pooler/dense/kernel"
    wide = np.zeros((D, D + 1), np.float32)
    refused(tmp_path, tensors | {name: wide}, f"{name} is 16x17, not 16x16")
    whole = np.zeros((D, D), np.int32)
    refused(
        tmp_path, tensors | {name: whole}, f"{name} has dtype int32; a parameter must"
    )
    broken = np.full((D, D), np.nan, np.float32)
    refused(tmp_path, tensors | {name: broken}, f"{name} hold NaN")


def test_tensorflow_2_objects_are_refused(tmp_path):
    tf = quiet_tensorflow()
    folder = tmp_path / "uncased"
    tf.train.Checkpoint(x=tf.Variable(1.0)).write(str(folder / "bert_model.ckpt"))
    with pytest.raises(ValueError, match="TensorFlow 2's objects; name one"):
        read_tf1(epath.Path(folder))


def test_without_tensorflow_the_remedy_is_told(written, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(ValueError, match="TensorFlow, which is missing; `pip install"):
        read_tf1(epath.Path(written[0]))
