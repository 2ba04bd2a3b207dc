"""Tokenizers of other families, beside the library `tokenizers` itself."""

import json
import re
import shlex

import numpy as np
import pytest
import tokenizers
from etils import epath
from family_files import byte_level_bpe, unigram, write_model, write_tokenizer
from test_tokenizer_parity import ODD, TEXT

from bert_jax.cli.main import main
from bert_jax.config import PrepareConfig
from bert_jax.data.examples import build_row, join_pair
from bert_jax.data.prepare import prepare
from bert_jax.formats.tokenizers import from_huggingface
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer

FAMILIES = ("Roberta", "XLMRoberta", "Camembert")
PADDING = {
    "strategy": "BatchLongest",
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 1,
    "pad_type_id": 0,
    "pad_token": "<pad>",
}


def written(family, folder):
    write_tokenizer(family, folder)
    return from_huggingface(epath.Path(folder))


@pytest.mark.parametrize("rest", ["tokenizer_config.json", "none"])
def test_a_tokenizer_without_a_model_is_imported_as_advised(rest, tmp_path, capsys):
    """As save_pretrained of a tokenizer writes it, and save of the library."""
    folder, output = tmp_path / "a", tmp_path / "b"
    folder.mkdir()
    alone = written("Roberta", folder)
    if rest == "none":
        (folder / "tokenizer_config.json").unlink()
    words = ["--input", "a.txt", "--output", str(tmp_path / "data")]
    assert main(["prepare", "--tokenizer", str(folder), *words]) == 2
    advice = re.search("`bert-jax (convert import .*)`", capsys.readouterr().err)
    assert main(shlex.split(advice[1].replace("CKPT", str(output)))) == 0
    assert Tokenizer.load(output).fingerprint == alone.fingerprint


@pytest.mark.parametrize("name", ["tf_model.h5", "model-00001-of-00002.safetensors"])
def test_a_tokenizer_beside_a_part_of_a_model_is_not_alone(name, tmp_path, capsys):
    """The model was wanted, and its tokenizer was written, with exit code 0."""
    written("Roberta", tmp_path)
    (tmp_path / name).touch()
    (tmp_path / "config.json").unlink(missing_ok=True)
    words = ["--from", "huggingface", str(tmp_path), "--output", str(tmp_path / "b")]
    assert main(["convert", "import", *words]) == 2
    assert "holds neither model.safetensors nor" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_and_offsets_are_the_librarys(family, tmp_path):
    tokenizer = written(family, tmp_path)
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    library.no_truncation()
    for text in [
        *TEXT.splitlines(),
        ODD,
        "the cat sat, a mat.",
        " the  cat",
        "Ünïcode\tthe\ncat",
    ]:
        theirs = library.encode(text, add_special_tokens=False)
        ours = tokenizer.encode(text)
        assert ours.ids.tolist() == theirs.ids
        assert [tuple(pair) for pair in ours.offsets.tolist()] == theirs.offsets
        assert tokenizer.encode_batch([text]) == [theirs.ids]


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_are_the_librarys(family, tmp_path):
    tokenizer = written(family, tmp_path)
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    library.no_truncation()
    one, two = "the cat", "a mat"
    first, second = tokenizer.encode_batch([one, two])
    assert build_row(tokenizer, first)[0] == library.encode(one).ids
    ids, start = build_row(tokenizer, first, second)
    assert ids == library.encode(one, two).ids
    assert ids[start:-1] == second
    assert tokenizer.num_separators == 2 and not tokenizer.has_segments
    short, _ = join_pair(tokenizer, first, second, max_length=8)
    assert len(short) == 8 and short.count(tokenizer.sep_id) == 3


@pytest.mark.parametrize("family", FAMILIES)
def test_names_of_special_tokens_are_text_except_for_the_mask(family, tmp_path):
    tokenizer = written(family, tmp_path)
    special = set(tokenizer.special_ids.values())
    assert len(special) == 5
    text = "the </s> cat <mask> <s><pad>"
    assert not (special - {tokenizer.unk_id}) & set(tokenizer.encode(text).ids.tolist())
    ids = tokenizer.encode(text, mask_token=True).ids.tolist()
    assert ids.count(tokenizer.mask_id) == 1 and tokenizer.mask_token == "<mask>"
    assert not (special - {tokenizer.unk_id, tokenizer.mask_id}) & set(ids)


def test_words_bytes_and_text(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    tokenizer = written("Roberta", tmp_path / "a")
    encoding = tokenizer.encode("a the cat")
    assert tokenizer.tokens(encoding.ids) == ["a", "Ġthe", "Ġ", "cat"]
    assert encoding.continues.tolist() == [True, False, False, True]
    assert tokenizer.num_bytes[encoding.ids].tolist() == [1, 4, 1, 3]
    assert tokenizer.decode(encoding.ids) == "a the cat"
    tokenizer = written("XLMRoberta", tmp_path / "b")
    encoding = tokenizer.encode("the cats")
    assert tokenizer.tokens(encoding.ids) == ["▁the", "▁cat", "s"]
    assert encoding.continues.tolist() == [False, False, True]
    assert tokenizer.num_bytes[encoding.ids].tolist() == [4, 4, 1]
    assert tokenizer.decode(encoding.ids) == "the cats"


def refused_spans(tokenizer, tmp_path, refused):
    tokenizer.save(tmp_path / "tokenizer")
    (tmp_path / "a.txt").write_text("the cat\nsat\n\na mat\n\nthe\n\ncat\n")
    prepare(
        PrepareConfig(
            input=(str(tmp_path / "a.txt"),),
            tokenizer=str(tmp_path / "tokenizer"),
            output=str(tmp_path / "data"),
            sequence_length=16,
            pairs="none",
            workers=1,
        )
    )
    run = ["pretrain", "--workdir", tmp_path / "run", "--data.path", tmp_path / "data"]
    return refused(*run, "--masking.unit", "span", "--batch-size", 1)


def test_words_are_not_masked_where_a_vocabulary_marks_their_ends(tmp_path, refused):
    """As HerBERT's."""
    library = tokenizers.CharBPETokenizer(unk_token="<unk>", suffix="</w>")
    names = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
    library.train_from_iterator(["the cat sat", "a mat"], 30, 1, names, suffix="</w>")
    content = library.to_str().encode()
    roles = dict(zip(SPECIAL_TOKENS, names, strict=True))
    config = {"kind": "huggingface", "cased": True, "special_tokens": roles}
    tokenizer = Tokenizer(config, content)
    assert tokenizer.num_bytes[tokenizer.encode("the cat").ids].sum() == len("the cat ")
    error = refused_spans(tokenizer, tmp_path, refused)
    assert "marks where words end, not where they start; use masking.unit" in error


def test_words_are_not_masked_where_a_vocabulary_marks_none(tmp_path, refused):
    """As that of the library's first example; single pieces would be masked."""
    library = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="[UNK]"))
    library.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    trainer = tokenizers.trainers.BpeTrainer(special_tokens=[*SPECIAL_TOKENS])
    library.train_from_iterator(["the cat sat", "a mat"], trainer)
    roles = {name: name for name in SPECIAL_TOKENS}
    config = {"kind": "huggingface", "cased": True, "special_tokens": roles}
    tokenizer = Tokenizer(config, library.to_str().encode())
    error = refused_spans(tokenizer, tmp_path, refused)
    assert "does not tell where they start; use masking.unit=token" in error


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_saved_byte_for_byte(family, tmp_path):
    tokenizer = written(family, tmp_path)
    tokenizer.save(tmp_path / "copy")
    content = (tmp_path / "tokenizer.json").read_bytes()
    assert (tmp_path / "copy" / "tokenizer.json").read_bytes() == content
    again = Tokenizer.load(tmp_path / "copy")
    assert again.fingerprint == tokenizer.fingerprint
    assert again.special_ids == tokenizer.special_ids
    np.testing.assert_array_equal(again.continues_word, tokenizer.continues_word)


@pytest.mark.parametrize("family", FAMILIES)
def test_roles_that_no_file_names_have_transformers_default_names(family, tmp_path):
    """The form of the first released models: no file has `mask_token`, for example."""
    named = written(family, tmp_path)
    content = byte_level_bpe() if family == "Roberta" else unigram(family)
    if family == "Roberta":
        content["model"]["unk_token"] = None
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 512}')
    tokenizer = from_huggingface(epath.Path(tmp_path))
    assert tokenizer.special_names == named.special_names
    assert tokenizer.special_ids == named.special_ids
    # With two default names, or none, nothing says which is meant.
    vocab = content["model"]["vocab"]
    name = "[MASK]" if family == "Roberta" else ["[MASK]", 0.0]
    if isinstance(vocab, dict):
        vocab[name] = len(vocab)
    else:
        vocab.append(name)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="which tokens are the mask_token; write them"):
        from_huggingface(epath.Path(tmp_path))


def test_roles_follow_from_the_file_where_no_other_names_them(tmp_path):
    text = json.dumps(unigram("XLMRoberta") | {"padding": PADDING})
    for name in ("mask", "pad"):
        text = text.replace(f"<{name}>", f"<my_{name}>")
    (tmp_path / "tokenizer.json").write_text(text)
    path = tmp_path / "tokenizer_config.json"
    path.write_text("{}")
    with pytest.raises(ValueError, match="which tokens are the mask_token; write them"):
        from_huggingface(epath.Path(tmp_path))
    path.write_text('{"mask_token": {"content": "<my_mask>", "lstrip": true}}')
    tokenizer = from_huggingface(epath.Path(tmp_path))
    assert list(tokenizer.special_names.values()) == [
        "<my_pad>",
        "<unk>",
        "<s>",
        "</s>",
        "<my_mask>",
    ]


def no_template(content):
    content["post_processor"] = content["pre_tokenizer"]


def other_template(content):
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [],
        "special_tokens": {},
    }


def huge_id(content):
    content["model"]["vocab"]["the"] = 4_000_000_000


def absent_mask(content):
    content["added_tokens"].pop()
    del content["model"]["vocab"]["<mask>"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (no_template, "adds no special tokens to a text"),
        (other_template, "of a pair, where c is cls_token"),
        (huge_id, "the id 4000000000 of"),
        (absent_mask, "lacks <mask>"),
    ],
)
def test_what_is_refused_is_one_line(damage, message, tmp_path):
    write_tokenizer("Roberta", tmp_path)
    content = byte_level_bpe()
    damage(content)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message) as error:
        from_huggingface(epath.Path(tmp_path))
    assert "\n" not in str(error.value) and "tokenizer.json" in str(error.value)


def test_files_that_disagree_are_refused(tmp_path):
    write_tokenizer("Roberta", tmp_path)
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"add_prefix_space": True}))
    with pytest.raises(ValueError, match="add_prefix_space=True in tokenizer_config"):
        from_huggingface(epath.Path(tmp_path))
    path.write_text(json.dumps(config | {"sep_token": "the"}))
    with pytest.raises(ValueError, match="sep_token is 'the' in one file and '</s>'"):
        from_huggingface(epath.Path(tmp_path))


def test_more_rows_than_tokens_are_put_aside(tmp_path):
    """The multilingual MiniLM has 35 rows more than its tokenizer has tokens."""
    import safetensors.numpy

    from bert_jax.formats.huggingface import read_huggingface

    folder = write_model("XLMRobertaModel", tmp_path / "model")
    path = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    table = tensors["embeddings.word_embeddings.weight"]
    more = np.concatenate([table, np.ones((35, table.shape[1]), np.float32)])
    tensors["embeddings.word_embeddings.weight"] = more
    safetensors.numpy.save_file(tensors, path, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 75}))
    imported = read_huggingface(epath.Path(folder))
    assert imported.config.vocab_size == 40
    assert imported.left_over == ("embeddings.word_embeddings.weight[40:75]",)
    assert imported.unused["encoder/embeddings/token/embedding"].shape == (35, 16)


def test_a_normalizer_may_write_bytes_or_lower_a_marked_text(tmp_path):
    """What a pre-tokenizer usually does; the mark of a word may stand before it."""
    write_tokenizer("Roberta", tmp_path)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text())
    steps = [{"type": "NFC"}, {"type": "ByteLevel"}]
    content["normalizer"] = {"type": "Sequence", "normalizers": steps}
    content["pre_tokenizer"] = None
    path.write_text(json.dumps(content))
    tokenizer = from_huggingface(epath.Path(tmp_path))
    assert tokenizer.continues_word.any() and tokenizer.cased
    steps[1:] = [{"type": "Lowercase"}, {"type": "Prepend", "prepend": "\u2581"}]
    path.write_text(json.dumps(content))
    assert not from_huggingface(epath.Path(tmp_path)).cased
