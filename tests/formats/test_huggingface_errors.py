"""Model directories that cannot be taken: one line each, and nothing written."""

import json
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from etils import epath
from huggingface_files import Files, stored

from bert_jax.formats.huggingface import read_huggingface
from bert_jax.formats.tensor_files import open_file

TABLE = "bert.embeddings.word_embeddings.weight"
QUERY = "bert.encoder.layer.0.attention.self.query"
BIAS = "cls.predictions.bias"


@pytest.fixture
def refused_import(refused):
    """The one line that importing a folder prints; nothing is left above it."""

    def imported(folder: Path, above: Path | None = None) -> str:
        above = above or folder.parent
        command = ("convert", "import", folder, "--from", "huggingface", "--output")
        return refused(*command, above / "checkpoint", unchanged=above)

    return imported


def config(**values: Any) -> Callable[[Files], None]:
    return lambda files: files.config.update(values)


def tensor(name: str, values: np.ndarray) -> Callable[[Files], None]:
    return lambda files: files.tensors.update({name: values.astype(np.float32)})


def without(*names: str) -> Callable[[Files], None]:
    return lambda files: [files.tensors.pop(name) for name in names] and None


def broken(value: float) -> Callable[[Files], None]:
    def change(files: Files) -> None:
        files.tensors[TABLE][3, 4] = value
        files.tensors[BIAS][0] = value

    return change


def shorter_vocabulary(files: Files) -> None:
    files.vocabulary = files.vocabulary[:-1]


def another_decoder(files: Files) -> None:
    decoder = files.tensors[TABLE].copy()
    decoder[0, 0] = np.nextafter(decoder[0, 0], 9)
    files.tensors["cls.predictions.decoder.weight"] = decoder


def double(files: Files) -> None:
    files.tensors[TABLE] = files.tensors[TABLE].astype(np.float64)


CASES: list[tuple[Callable[[Files], None], str]] = [
    (config(hidden_act="silu"), "hidden_act='silu' must be one of gelu, gelu_p"),
    (
        config(position_embedding_type="relative_key"),
        "position_embedding_type='relative_key' is not supported; .* only 'absolute'",
    ),
    (config(is_decoder=True), "is_decoder=True is not supported"),
    (config(add_cross_attention=True), "add_cross_attention=True is not supported"),
    (config(model_type="albert"), "model_type='albert' is not supported, because"),
    (
        config(model_type="gpt2"),
        "model_type='gpt2' is not supported; bert_jax supports",
    ),
    (config(architectures=["BertLMHeadModel"]), "must hold one of BertModel, BertFor"),
    (config(architectures=[]), r"architectures=\[\] must hold one of"),
    (config(hidden_size="32"), "hidden_size='32' must be a whole number"),
    (config(vocab_size=10**400), "vocab_size=1000.* is too large; it must be"),
    (config(layer_norm_eps=10**400), "layer_norm_eps=1000.* is infinite in float32"),
    (config(layer_norm_eps=0), "layer_norm_eps=0.0 must be finite and greater than 0"),
    (config(hidden_dropout_prob=2), "hidden_dropout_prob=2.0 must be at least 0"),
    (config(num_attention_heads=5), "hidden_size=32 is not a multiple of num_att"),
    (config(num_hidden_layers=10**9), "num_hidden_layers=1000000000,.*; lower them to"),
    (config(vocab_size=61), f"{TABLE} is 60x32, not 61x32; .*bias is 60, not 61"),
    (config(intermediate_size=65), "intermediate.dense.weight is 64x32, not 65x32"),
    (config(tie_word_embeddings=False), "tie_word_embeddings=False, but .* lacks cls"),
    (tensor(f"{QUERY}.weight", np.zeros((32, 31))), f"{QUERY}.weight is 32x31, not 32"),
    (tensor(f"{QUERY}.bias", np.zeros(())), f"{QUERY}.bias is a scalar, not 32"),
    (without(BIAS, TABLE), f"lacks {TABLE}, {BIAS}; a model with the head pretrain"),
    (without("bert.pooler.dense.bias"), "lacks bert.pooler.dense.bias; a model"),
    (tensor("qa_outputs.bias", np.zeros(2)), "holds qa_outputs.bias, which .*-extra"),
    (tensor("embeddings.LayerNorm.bias", np.ones(32)), "holds embeddings.LayerNorm.b"),
    (tensor("bert.embeddings.LayerNorm.beta", np.ones(32)), "are two tensors for one"),
    (broken(np.nan), f"{TABLE}, {BIAS} hold NaN or infinity; the model is damaged"),
    (broken(np.inf), f"{TABLE}, {BIAS} hold NaN or infinity; the model is damaged"),
    (another_decoder, f"cls.predictions.decoder.weight differs from {TABLE}; bert_jax"),
    (double, f"{TABLE} has dtype F64; a parameter must have one of float32, float16"),
    (shorter_vocabulary, "the vocabulary has 59 tokens and the table .* 60 rows"),
]


@pytest.mark.parametrize(("change", "message"), CASES)
def test_what_cannot_be_taken_is_one_line(change, message, tmp_path, refused_import):
    files = stored("BertForPreTraining")
    change(files)
    with pytest.raises(ValueError, match=message):
        raise ValueError(refused_import(files.write(tmp_path / "model")))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"id2label": {"0": "a", "2": "b"}}, 'must name each class by "0", "1"'),
        ({"id2label": {"0": "a", "1": 7}}, 'must name each class by "0", "1"'),
        ({"id2label": ["a", "b", "c"]}, 'must name each class by "0", "1"'),
        ({"id2label": None, "num_labels": -1}, "num_labels=-1 must be a number of cl"),
        ({"id2label": None}, "classifier.weight is 3x32, not 2x32"),
        (
            {"problem_type": "regression"},
            "gives 3 numbers for a text",
        ),
    ],
)
def test_labels_that_are_none(values, message, tmp_path, refused_import):
    files = stored("BertForSequenceClassification")
    files.config.update(values)
    assert message in refused_import(files.write(tmp_path / "model"))


def test_one_score_without_an_architecture_is_not_guessed(tmp_path, refused_import):
    files = stored("BertForMultipleChoice")
    del files.config["architectures"]
    assert "gives one score" in refused_import(files.write(tmp_path / "model"))
    files.config |= {"model_type": "camembert", "pad_token_id": 0}
    files.rename("bert.", "roberta.")
    advice = 'add "architectures": ["CamembertForSequenceClassification"]'
    assert advice in refused_import(files.write(tmp_path / "another"))


def write_raw(path: Path, header: bytes | dict[str, Any], data: bytes = b"") -> None:
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(content)) + content + data)


def entry(begin: int, end: int, dtype: str = "F32", shape: Any = (1,)) -> Any:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


TWO = {"a": entry(0, 4), "b": entry(4, 8)}
HEADERS: list[tuple[Any, bytes, str]] = [
    (b'{"a": 1, "a": 2}', b"", "invalid JSON in header"),
    (b"{" * 100_000, b"", "invalid JSON in header"),
    (b'{"a":' * 100_000, b"", "recursion limit exceeded"),
    (b"{\xff", b"", "invalid UTF-8 in header"),
    (TWO, b"1234", "file not fully covered"),
    (TWO, b"123456789", "file not fully covered"),
    (TWO | {"b": entry(2, 6)}, b"12345678", "invalid offset for tensor `b`"),
    (TWO | {"b": entry(5, 9)}, b"123456789", "invalid offset for tensor `b`"),
    (TWO | {"a": entry(2**62, 2**62 + 4)}, b"12345678", "invalid offset for tensor"),
    (TWO | {"b": entry(4, 9)}, b"123456789", "invalid shape, data type, or offset"),
    (TWO | {"b": entry(8, 4)}, b"12345678", "invalid offset for tensor `b`"),
    ({"a": entry(0, 4, shape=[2**62, 4])}, b"1234", "overflow"),
    ({"a": entry(-4, 0)}, b"", "invalid value: integer `-4`"),
    ({"a": entry(0, 2**64)}, b"", "invalid type: floating point"),
    ({"a": entry(0, 4, shape=[1.0])}, b"1234", "invalid type: floating point `1.0`"),
    ({"a": entry(0, 4, dtype="F31")}, b"1234", "unknown variant `F31`"),
    ({"a": [0, 4]}, b"1234", "invalid type: integer `0`"),
    ({"a\nb": entry(0, 4)}, b"1234", r"'a\\nb' is not the name of a tensor"),
]


@pytest.mark.parametrize(("header", "data", "message"), HEADERS)
def test_a_damaged_header_is_refused(header, data, message, tmp_path):
    write_raw(path := tmp_path / "model.safetensors", header, data)
    with pytest.raises(ValueError, match=message) as error:
        open_file(epath.Path(path))
    assert "\n" not in str(error.value) and str(path) in str(error.value)
    assert str(error.value).endswith("; fetch the file again.")


def test_a_file_that_is_cut_off_after_its_header_was_read(tmp_path):
    """A memory map would end the process."""
    path = tmp_path / "model.safetensors"
    write_raw(path, {"a": entry(0, 80_000, shape=[20_000])}, bytes(80_000))
    (opened,) = open_file(epath.Path(path))
    os.truncate(path, 200)
    with pytest.raises(ValueError, match="is damaged: a cannot be read"):
        opened.read()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04" + bytes(60), "is a pickle, which can run any program"),
        (b"\x80\x02}q\x00." + bytes(60), "is a pickle, which can run any program"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
        (b"", "no header begins at byte 8"),
        (
            struct.pack("<Q", 1 << 62) + b"{}",
            "cut off (Error while deserializing header: header",
        ),
        (struct.pack("<Q", 2) + b"[]", "no header begins at byte 8"),
    ],
)
def test_what_is_no_safetensors_file(content, message, tmp_path, refused_import):
    folder = stored("BertModel").write(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(content)
    assert message in refused_import(folder)


def test_a_directory_of_a_pickle_is_refused_unread(tmp_path, refused_import):
    folder = stored("BertModel").write(tmp_path / "model")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    for named in (folder, folder / "pytorch_model.bin"):
        (folder / "pytorch_model.bin").write_bytes(b"\x80\x02}q\x00." + bytes(60))
        error = refused_import(named, tmp_path)
        assert "pytorch_model.bin is a pickle" in error and "weights_only=True" in error


def test_files_that_are_missing(tmp_path, refused_import):
    folder = stored("BertModel").write(tmp_path / "model")
    (folder / "config.json").unlink()
    assert "lacks config.json, which describes" in refused_import(folder)
    (folder / "model.safetensors").unlink()
    assert "holds neither model.safetensors nor" in refused_import(folder)
    assert "nowhere does not exist; name a" in refused_import(tmp_path / "nowhere")
    (folder / "bert_model.ckpt.index").touch()
    assert "read it by `bert-jax convert import --from tf1`" in refused_import(folder)


def test_a_model_of_another_width_is_told_by_its_first_tensors(
    tmp_path, refused_import
):
    files = stored("BertForPreTraining")
    files.config["hidden_size"] = 64
    error = refused_import(files.write(tmp_path / "model"))
    assert error.count(" not ") == 8 and "; 42 in all differ, as config.json" in error


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ({}, "has no weight_map"),
        (
            {"a": "../model-00001-of-00002.safetensors"},
            "must be in the directory of its index",
        ),
        ({"a": 7}, "must be in the directory of its index"),
        ({"a": "absent.safetensors"}, "lacks absent.safetensors, which"),
        ({"a": "model-00001-of-00002.safetensors"}, "and its shards disagree on a, em"),
    ],
)
def test_an_index_that_is_wrong(places, message, tmp_path, refused_import):
    folder = stored("BertModel").write_shards(tmp_path / "model")
    index = json.dumps({"weight_map": places})
    (folder / "model.safetensors.index.json").write_text(index)
    assert message in refused_import(folder)


def test_an_output_that_exists_is_kept(tmp_path, refused):
    folder = stored("BertModel").write(tmp_path / "model")
    command = ["convert", "import", str(folder), "--from", "huggingface"]
    assert "exists and is not an empty directory" in refused(
        *command, "--output", str(tmp_path / "model")
    )


ODD = (0, 1, -1, 2, 31, 2**31, 2**63, 10**30, 1e308, None, True, "", "x", [], {}, [[]])


def mutated_json(content: bytes, generator: random.Random) -> bytes:
    """One value replaced by an odd one; or some bytes changed, gone or doubled."""
    if generator.random() < 0.5:
        values = json.loads(content)
        node, name = values, generator.choice(sorted(values))
        while isinstance(node[name], dict) and node[name] and generator.random() < 0.9:
            node = node[name]
            name = generator.choice(sorted(node))
        if isinstance(node[name], list) and node[name] and generator.random() < 0.7:
            node, name = node[name], generator.randrange(len(node[name]))
        node[name] = generator.choice(ODD)
        return json.dumps(values).encode()
    place = generator.randrange(len(content))
    length = generator.choice((1, 1, 2, 20))
    noise = generator.choice((b"", generator.randbytes(length), content[place:][:40]))
    return content[:place] + noise + content[place + length :]


@pytest.mark.slow
def test_a_thousand_damaged_models_end_in_one_line(tmp_path):
    """Or in the very same parameters, where the damage is to nothing that counts."""
    folder = stored("BertForMaskedLM").write(tmp_path / "model")
    config_path, tensors_path = folder / "config.json", folder / "model.safetensors"
    config, tensors = config_path.read_bytes(), tensors_path.read_bytes()
    end = 8 + int.from_bytes(tensors[:8], "little")
    expected = jax.tree.leaves(read_huggingface(epath.Path(folder)).params)
    generator = random.Random(0)
    outcomes = {"refused": 0, "equal": 0}
    for number in range(1000):
        config_path.write_bytes(config)
        tensors_path.write_bytes(tensors)
        if number % 4 == 0:
            config_path.write_bytes(mutated_json(config, generator))
        elif number % 4 == 1:
            cut = generator.randrange(len(tensors))
            tensors_path.write_bytes(tensors[:cut])
        else:
            header = mutated_json(tensors[8:end], generator)
            shift = generator.choice((0, 0, 0, 1, -1, 1 << 40))
            length = struct.pack("<Q", len(header) + shift)
            tensors_path.write_bytes(length + header + tensors[end:])
        try:
            found = read_huggingface(epath.Path(folder))
        except (ValueError, OSError) as error:
            assert "\n" not in str(error), error  # noqa: PT017  may also succeed
            outcomes["refused"] += 1
            continue
        for one, other in zip(jax.tree.leaves(found.params), expected, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=str(number))
        outcomes["equal"] += 1
    assert min(outcomes.values()) > 20, outcomes


def test_all_that_does_not_fit_is_one_line(tmp_path):
    """A user need not correct one thing after the other."""
    files = stored("BertForMaskedLM")
    files.rename("cls.predictions.transform.dense", "cls.predictions.dense")
    files.config["type_vocab_size"] = 3
    with pytest.raises(ValueError, match="lacks cls.predictions.transform") as error:
        read_huggingface(epath.Path(files.write(tmp_path / "model")))
    message = str(error.value)
    assert "holds cls.predictions.dense.bias, cls.predictions.dense.weight" in message
    assert "token_type_embeddings.weight is 2x32, not 3x32" in message
    assert "\n" not in message
