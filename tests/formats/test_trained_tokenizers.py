"""Tokenizers of thousands of pieces in the released form of RoBERTa, XLM-R, CamemBERT.

They are trained here on text of many scripts, so that most of a text is known pieces,
and written as transformers' converters write them, with no role in any other file.
"""

import io
import json
import random
from pathlib import Path

import pytest
import sentencepiece
import tokenizers
from etils import epath
from test_tokenizer_parity import ODD, TEXT
from tokenizers import (
    AddedToken,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from bert_jax.data.examples import build_row
from bert_jax.formats.sentencepiece_files import read_model
from bert_jax.formats.tokenizers import from_huggingface
from bert_jax.tokenization import Tokenizer

SIZE = 3000
FAMILIES = ("Roberta", "XLMRoberta", "Camembert")
SPECIAL = {
    "Roberta": ["<s>", "<pad>", "</s>", "<unk>"],
    "XLMRoberta": ["<s>", "<pad>", "</s>", "<unk>"],
    "Camembert": ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"],
}
OWN_PIECES = {"XLMRoberta": 3, "Camembert": 1}
"""Pieces of sentencepiece, from the first, that special tokens stand for."""


def lines() -> list[str]:
    """The documentation, and words of many scripts in random order."""
    root = Path(__file__).parents[2]
    found = [
        line
        for path in sorted(root.glob("docs/*.md"))
        for line in path.read_text().splitlines()
    ]
    words, generator = TEXT.split(), random.Random(0)
    return found + [" ".join(generator.choices(words, k=12)) for _ in range(2000)]


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("trained")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines()),
        model_writer=model,
        vocab_size=SIZE,
        model_type="unigram",
        normalization_rule_name="nmt_nfkc",
        character_coverage=1.0,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
    )
    (root / "unigram.model").write_bytes(model.getvalue())
    made = {family: root / family for family in FAMILIES}
    for family, folder in made.items():
        folder.mkdir()
        content = model.getvalue()
        library = byte_level_bpe() if family == "Roberta" else unigram(content, family)
        library.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text('{"model_max_length": 512}')
    return made


def special_tokens(names: list[str]) -> list[AddedToken]:
    flags = {"special": True, "normalized": False}
    ordinary = [AddedToken(name, **flags) for name in names]
    return [*ordinary, AddedToken("<mask>", lstrip=True, **flags)]


def byte_level_bpe() -> tokenizers.Tokenizer:
    """As RobertaConverter: no token for unknown bytes in the model."""
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        show_progress=False,
        special_tokens=special_tokens(SPECIAL["Roberta"])[:-1],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    library.train_from_iterator(lines(), trainer)
    library.add_special_tokens(special_tokens(SPECIAL["Roberta"]))
    library.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return library


def unigram(content: bytes, family: str) -> tokenizers.Tokenizer:
    """As XLMRobertaConverter and CamembertConverter, which shift the ids."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=content)
    scored = [
        (processor.id_to_piece(i), processor.get_score(i))
        for i in range(OWN_PIECES[family], processor.vocab_size())
    ]
    special = [
        (name, -100.0 if name == "<unk>NOTUSED" else 0.0) for name in SPECIAL[family]
    ]
    vocab = [*special, *scored, ("<mask>", 0.0)]
    library = tokenizers.Tokenizer(models.Unigram(vocab, unk_id=3))
    charsmap, _ = read_model(content)
    library.normalizer = normalizers.Precompiled(charsmap)
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    library.decoder = decoders.Metaspace()
    number = {token: i for i, (token, _) in enumerate(vocab)}
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[(token, number[token]) for token in ("<s>", "</s>")],
    )
    names = [name for name in SPECIAL[family] if name != "<unk>NOTUSED"]
    library.add_special_tokens(special_tokens([*names, "<s>", "</s>"]))
    return library


def texts() -> list[str]:
    words, generator = TEXT.split(), random.Random(1)
    mixed = [" ".join(generator.choices(words, k=9)) for _ in range(60)]
    spaced = ["", " ", "  two  spaces ", "\u3000wide\u3000space", "tab\there\nthere"]
    return [*TEXT.splitlines(), ODD, *mixed, *spaced, *lines()[:300:3]]


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_offsets_and_rows_are_the_librarys(family, folders):
    tokenizer = from_huggingface(epath.Path(folders[family]))
    assert tokenizer.vocab_size > 2000
    path = folders[family] / "tokenizer.json"
    library = tokenizers.Tokenizer.from_file(str(path))
    encodings = library.encode_batch(texts(), add_special_tokens=False)
    batch = tokenizer.encode_batch(texts())
    known = 0
    for text, theirs, ids in zip(texts(), encodings, batch, strict=True):
        ours = tokenizer.encode(text)
        assert ids == ours.ids.tolist() == theirs.ids
        assert [tuple(pair) for pair in ours.offsets.tolist()] == theirs.offsets
        assert build_row(tokenizer, ids)[0] == library.encode(text).ids
        known += len(ids) - ids.count(tokenizer.unk_id)
        row, _ = build_row(tokenizer, ids, batch[0])
        assert row == library.encode(text, texts()[0]).ids
    total, characters = sum(map(len, batch)), sum(map(len, texts()))
    assert known > 0.99 * total
    assert total < 0.6 * characters, "most pieces are single characters"


@pytest.mark.parametrize("family", FAMILIES)
def test_roles_are_those_of_the_released_files(family, folders):
    tokenizer = from_huggingface(epath.Path(folders[family]))
    first = {"Camembert": [1, 3, 5, 6]}.get(family, [1, 3, 0, 2])
    names = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
    assert [tokenizer.special_ids[name] for name in names] == first
    assert tokenizer.mask_id == tokenizer.vocab_size - 1
    path = folders[family] / "tokenizer.json"
    library = tokenizers.Tokenizer.from_file(str(path))
    text = "the <mask> of a row"
    ids = tokenizer.encode(text, mask_token=True).ids.tolist()
    assert ids == library.encode(text, add_special_tokens=False).ids
    assert ids.count(tokenizer.mask_id) == 1


@pytest.mark.parametrize("family", OWN_PIECES)
def test_the_shift_of_ids_is_that_of_sentencepiece(family, folders):
    """Of lines on which the two libraries normalize alike."""
    path = folders[family].parent / "unigram.model"
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    tokenizer = from_huggingface(epath.Path(folders[family]))
    shift = len(SPECIAL[family]) - OWN_PIECES[family]
    plain = [line for line in lines()[:300] if line.isascii()]
    for line in plain:
        ids = processor.encode(line)
        expected = [tokenizer.unk_id if i == 0 else i + shift for i in ids]
        assert tokenizer.encode(line).ids.tolist() == expected
    assert len(plain) > 200


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_kept_byte_for_byte(family, folders, tmp_path):
    tokenizer = from_huggingface(epath.Path(folders[family]))
    tokenizer.save(tmp_path / "copy")
    content = (folders[family] / "tokenizer.json").read_bytes()
    assert (tmp_path / "copy" / "tokenizer.json").read_bytes() == content
    assert Tokenizer.load(tmp_path / "copy").special_ids == tokenizer.special_ids


@pytest.mark.parity
@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_class_gives_the_same_ids(family, folders):
    """Its own class, made of the vocabulary alone, knows all roles by default."""
    transformers = pytest.importorskip("transformers")
    content = json.loads((folders[family] / "tokenizer.json").read_text())
    model, options = content["model"], {}
    if family == "Roberta":
        options["merges"] = [tuple(pair) for pair in model["merges"]]
        vocab = model["vocab"]
    else:
        vocab = [tuple(pair) for pair in model["vocab"]]
        charsmap, _ = read_model(
            (folders[family].parent / "unigram.model").read_bytes()
        )
        options["_spm_precompiled_charsmap"] = charsmap
    cls = getattr(transformers, f"{family}Tokenizer")
    theirs = cls(vocab=vocab, **options)
    ours = from_huggingface(epath.Path(folders[family]))
    assert theirs.all_special_ids and theirs.mask_token_id == ours.mask_id
    assert theirs.pad_token_id == ours.pad_id and theirs.unk_token_id == ours.unk_id
    for text in texts():
        expected = theirs(text, add_special_tokens=False)["input_ids"]
        assert ours.encode(text).ids.tolist() == expected, text
