"""Bad inputs: files to fine-tune on, to score, to answer and to take features of."""

import json
import os
from collections.abc import Callable

from bad_case import Case, World

GOOD = "text,label\n" + "".join(f"letter {i},{'ab'[i % 2]}\n" for i in range(20))
NUMBERS = "text,label\n" + "".join(f"letter {i},{i / 4}\n" for i in range(20))

Command = Callable[[World], list[str]]


def file(world: World, name: str, content: str | bytes) -> str:
    """A file in the empty folder."""
    path = world.folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def finetune(
    content: str | bytes,
    *options: str,
    task: str = "text-classification",
    name: str = "train.csv",
) -> Command:
    """Fine-tune the small encoder on a file of this content."""
    return lambda world: [
        *("finetune", task, "--data.train", file(world, name, content)),
        *("--init-from", str(world.encoder), "--workdir", str(world.folder / "run")),
        *("--batch-size", "4", "--mesh.data", "1", "--data.num-buckets", "1"),
        *("--data.max-length", "32", *options),
    ]


def regression(content: str, name: str = "train.csv") -> Command:
    """Fine-tune on numbers."""
    return finetune(content, task="text-regression", name=name)


def objects(*lines: str) -> str:
    """Twenty good lines of JSON, and these."""
    good = [json.dumps({"text": f"letter {i}", "label": "ab"[i % 2]}) for i in range(8)]
    return "\n".join([*good, *lines]) + "\n"


def squad(text: str | bytes) -> Command:
    """Fine-tune on a file of questions."""

    def command(world: World) -> list[str]:
        options = ("--data.max-query-length", "8", "--data.document-stride", "8")
        options += ("--data.validation", file(world, "dev.json", answered()))
        task = {"task": "question-answering", "name": "train.json"}
        return finetune(text, *options, **task)(world)

    return command


def answered(context: str = '"context": "Oslo is cold."', extra: str = "") -> str:
    """A file of SQuAD's format with one question."""
    qa = (
        '{"id": "q", "question": "Where?", '
        f'"answers": [{{"text": "Oslo", "answer_start": 0}}]{extra}}}'
    )
    return f'{{"data": [{{"paragraphs": [{{{context}, "qas": [{qa}]}}]}}]}}'


TEXTS = [
    Case(
        "E-label-column-near-miss",
        finetune(GOOD, "--data.label-column", "lable"),
        ("train.csv, line 2 has no lable", "columns are text, label", "mean label?"),
    ),
    Case(
        "E-label-column-unlike-any",
        finetune(GOOD, "--data.label-column", "sentiment"),
        ("has no sentiment; its columns are text, label.", "--data.label-column"),
    ),
    Case(
        "E-text-column-near-miss",
        finetune(GOOD, "--data.text-columns", "Text"),
        ("line 2 has no Text; its columns are text, label. Did you mean text?",),
    ),
    Case(
        "E-label-column-with-blanks",
        finetune(GOOD.replace("text,label", "text, label")),
        ("has no label; its columns are text, ' label'. Did you mean ' label'?",),
    ),
    Case(
        "E-columns-parted-by-semicolons",
        finetune(GOOD.replace(",", ";"), "--data.text-columns", "text"),
        ("line 2 has no text; its columns are text;label. Are they parted by ';'?",),
    ),
    Case(
        "E-json-field-near-miss",
        finetune(objects(), "--data.label-column", "labels", name="a.jsonl"),
        ("a.jsonl, line 1 has no labels; its columns are text, label. Did you mean",),
    ),
    Case(
        "E-json-line-without-label",
        finetune(objects('{"text": "b"}'), name="a.jsonl"),
        ("a.jsonl, line 9 has no label; its columns are text.",),
    ),
    Case(
        "E-json-line-without-text",
        finetune(objects('{"txt": "b", "label": "a"}'), name="a.jsonl"),
        ("a.jsonl, line 9 has the columns txt, label; say which", "text-columns"),
    ),
    Case(
        "C-header-with-escapes",
        finetune("text,\x1b[31mlabel\x1b[0m\nhello,a\nbye,b\n"),
        ("has no label; its columns are text, '\\x1b[31mlabel\\x1b[0m'",),
    ),
    Case(
        "F-csv-header-twice",
        finetune("text,label,label\na,b,c\n"),
        ("train.csv, line 1 names label twice; each column needs a name of its own",),
    ),
    Case(
        "F-csv-two-empty-headers",
        finetune(",text,label,\n1,a,b,c\n"),
        ("train.csv, line 1 names '' twice",),
    ),
    Case("F-csv-empty", finetune(""), ("train.csv has no rows",)),
    Case("F-csv-header-only", finetune("text,label\n"), ("train.csv has no rows",)),
    Case(
        "F-csv-row-too-long",
        finetune(GOOD + "one, two,a\n"),
        ("train.csv, line 22 has 3 fields; the header has 2: text, label.",),
    ),
    Case(
        "F-csv-row-too-short",
        finetune(GOOD + "one\n"),
        ("train.csv, line 22 has 1 fields; the header has 2",),
    ),
    Case(
        "F-csv-open-quote",
        finetune(GOOD + '"half,a\n'),
        ("train.csv, line 22: unexpected end of data; a field with a comma, quote",),
    ),
    Case(
        "F-csv-quote-inside",
        finetune(GOOD + '"he said "no" twice",a\n'),
        ("train.csv, line 22: ',' expected after '\"'", "a quote in it doubled"),
    ),
    Case(
        "F-csv-latin-1",
        finetune(GOOD.encode() + "caf\u00e9,a\n".encode("latin-1")),
        (
            f"byte 0xe9 at {len(GOOD) + 3} is not UTF-8",
            "iconv -f WINDOWS-1252 -t UTF-8",
        ),
    ),
    Case(
        "F-csv-utf-16",
        finetune(GOOD.encode("utf-16")),
        ("byte 0xff at 0 is not UTF-8", "iconv -f UTF-16 -t UTF-8"),
    ),
    Case(
        "F-csv-text-empty",
        finetune(GOOD + " ,a\n"),
        ("train.csv, line 22: text is empty; write a text, or drop it",),
    ),
    Case(
        "F-csv-label-blank",
        finetune(GOOD + "one,  \n"),
        ("train.csv, line 22: label is empty; fill it in, or leave the row out",),
    ),
    Case(
        "F-one-class",
        finetune(GOOD.replace(",b", ",a")),
        ("label is 'a' in all 20 rows; there must be two classes",),
    ),
    Case(
        "F-suffix",
        finetune(GOOD, name="train.dat"),
        ("train.dat ends in .dat; it must be .csv, .tsv or .jsonl",),
    ),
    Case(
        "F-directory-for-a-file",
        lambda world: [
            *("finetune", "text-classification", "--data.train", str(world.corpus)),
            *("--init-from", str(world.encoder), "--workdir", str(world.folder / "r")),
        ],
        ("is not a file but a directory; name a .csv, .tsv or .jsonl",),
    ),
    Case(
        "C-device-for-a-file",
        lambda world: [
            *("finetune", "text-classification", "--data.train", "/dev/zero"),
            *("--init-from", str(world.encoder), "--workdir", str(world.folder / "r")),
        ],
        ("/dev/zero is not a file but a pipe or a device",),
    ),
    Case(
        "F-validation-of-another-class",
        lambda world: [
            *finetune(GOOD)(world),
            *("--data.validation", file(world, "dev.csv", "text,label\nx,a\ny,c\n")),
        ],
        ("dev.csv, line 3: 'c' is none of the classes that the model has (a, b)",),
    ),
    Case(
        "F-validation-without-labels",
        lambda world: [
            *finetune(GOOD)(world),
            *("--data.validation", file(world, "dev.csv", "text\nx\ny\n")),
        ],
        ("dev.csv, line 2: 2 of 2 validation examples have no label",),
    ),
    Case(
        "B3-classes-of-one-name",
        finetune(GOOD, "--data.labels", "a", "b", "a"),
        ("labels names 'a' twice, as classes 0 and 2; each class needs a name",),
    ),
    Case(
        "B3-class-without-a-name",
        finetune(GOOD, "--data.labels", "a", ""),
        ("labels names ''; a class's name must be a text",),
    ),
    Case(
        "F-class-not-named",
        finetune(GOOD, "--data.labels", "a", "c"),
        ("'b' is none of the classes that the model has (a, c)",),
    ),
]

NUMBER_RULE = "must be a finite number"
REGRESSION = [
    Case(
        f"B2-number-{name}",
        regression(NUMBERS + f"one,{number}\n"),
        ("train.csv, line 22: label=", NUMBER_RULE, remedy),
    )
    for name, number, remedy in (
        ("beyond-float32", "1e39", "at most 3.402823e+38"),
        ("below-minus-float32", "-1e39", "scale the labels"),
        ("underscore", "1_000", "in the digits 0 to 9"),
        ("arabic-digits", "\u0661\u0662", "in the digits 0 to 9"),
        ("nan", "nan", "in the digits 0 to 9"),
        ("infinity", "inf", "in the digits 0 to 9"),
        ("hexadecimal", "0x10", "in the digits 0 to 9"),
        ("decimal-comma", '"0,5"', "in the digits 0 to 9"),
        ("with-a-word", "5 stars", "in the digits 0 to 9"),
        ("of-400-digits", "9" * 400, "of 32 bits"),
        ("of-5000-digits", "9" * 5000, "of 32 bits"),
    )
] + [
    Case(
        f"D-json-number-{name}",
        regression(objects(f'{{"text": "b", "label": {number}}}'), "a.jsonl"),
        ("a.jsonl, line ", *says),
    )
    for name, number, says in (
        ("of-400-digits", "9" * 400, ("must be a finite number",)),
        ("of-5000-digits", "9" * 5000, ("a whole number has 5000 digits",)),
        ("nan", "NaN", ("NaN is not JSON; write a number, or null",)),
        ("1e999", "1e999", ("1e999 is beyond the largest number of 64 bits",)),
        ("true", "true", ("must be a finite number",)),
    )
]

JSON = [
    Case(
        "B2-jsonl-key-twice",
        finetune(objects('{"text": "x", "label": "a", "label": "b"}'), name="a.jsonl"),
        ("a.jsonl, line 9: 'label' stands twice in an object; keep one",),
    ),
    Case(
        "B2-squad-key-twice",
        squad(answered('"context": "Oslo is cold.", "context": "Bergen."')),
        ("train.json", "'context' stands twice in an object"),
    ),
    Case(
        "F-jsonl-half-a-character",
        finetune(objects('{"text": "\\ud83d", "label": "a"}'), name="a.jsonl"),
        ("a.jsonl, line 9: text holds half of a surrogate pair",),
    ),
    Case(
        "F-jsonl-text-is-a-number",
        finetune(objects('{"text": 3, "label": "a"}'), name="a.jsonl"),
        ("a.jsonl, line 9: text=3 must be a text",),
    ),
    Case(
        "F-jsonl-label-is-a-list",
        finetune(objects('{"text": "x", "label": ["a"]}'), name="a.jsonl"),
        ("a.jsonl, line 9: label=['a'] must be a single class", "--data.multi-label"),
    ),
    Case(
        "F-jsonl-label-null",
        finetune(objects('{"text": "x", "label": null}'), name="a.jsonl"),
        ("a.jsonl, line 9: label is empty",),
    ),
    Case(
        "F-jsonl-of-lists",
        finetune(objects('["x", "a"]'), name="a.jsonl"),
        ("a.jsonl, line 9 must be a JSON object with a field for each column",),
    ),
    Case(
        "F-jsonl-nested-too-deep",
        finetune(objects("[" * 100_000), name="a.jsonl"),
        ("a.jsonl, line 9 is nested too deep to be read",),
    ),
    Case(
        "F-json-pretty-printed",
        finetune('[\n  {"text": "x"}\n]', name="a.jsonl"),
        ("a.jsonl, line 1 is not JSON",),
    ),
    Case(
        "F-squad-answer-out-of-place",
        squad(answered().replace('"answer_start": 0', f'"answer_start": {10**30}')),
        ("none of 1 questions has an answer at its answer_start",),
    ),
    Case(
        "F-squad-no-data",
        squad('{"version": "1.1"}'),
        ("there is no 'data', but 'version'",),
    ),
    Case(
        "F-squad-impossible-is-a-word",
        squad(answered(extra=', "is_impossible": "false"')),
        ("'is_impossible' holds a string; it must be a truth value",),
    ),
    Case("F-squad-lines", squad('{"data": []}\n{"data": []}'), ("Extra data",)),
    Case(
        "F-squad-latin-1",
        squad(answered('"context": "Bod\u00f8"').encode("latin-1")),
        ("train.json: byte 0xf8 at ", "is not UTF-8"),
    ),
]


def evaluate(content: str | bytes, *options: str, name: str = "new.csv") -> Command:
    """Score the small classifier on a file of this content."""
    return lambda world: [
        *("evaluate", "--checkpoint", str(world.classifier)),
        *("--data.validation", file(world, name, content), *options),
    ]


def predict(content: str | bytes, *options: str, name: str = "new.jsonl") -> Command:
    """Ask the small classifier for a file of this content."""
    return lambda world: [
        *("predict", "--checkpoint", str(world.classifier)),
        *("--input", file(world, name, content), *options),
    ]


def features(content: str | bytes, output: str = "out.npz", *options: str) -> Command:
    """Hidden states of the lines of a file of this content."""
    return lambda world: [
        *("features", "--model", str(world.encoder), *options),
        *("--input", file(world, "new.txt", content)),
        *("--output", str(world.folder / output)),
    ]


def reading(verb: str, source: str) -> Command:
    """A verb that reads from what is no file."""

    def command(world: World) -> list[str]:
        path = source
        if source == "FIFO":
            path = str(world.folder / "pipe")
            os.mkfifo(path)
        if source == "FOLDER":
            path = str(world.corpus)
        if verb == "features":
            output = ("--output", str(world.folder / "a.npz"))
            return ["features", "--model", str(world.encoder), "--input", path, *output]
        option = "--input" if verb == "predict" else "--data.validation"
        return [verb, "--checkpoint", str(world.classifier), option, path]

    return command


def onto_a_file(world: World) -> list[str]:
    """`evaluate --output` with a file that is there."""
    there = file(world, "there", "mine")
    return [*evaluate("review,who\na,judge\n")(world), "--output", there]


def below_a_file(world: World) -> list[str]:
    """`evaluate --output` with a directory in a file."""
    there = file(world, "there", "mine")
    return [*evaluate("review,who\na,judge\n")(world), "--output", f"{there}/in"]


def onto_a_directory(world: World) -> list[str]:
    """`features --output` with a directory that is there."""
    (world.folder / "there.npz").mkdir()
    return features("a\n", "there.npz")(world)


NO_FILE = "is not a file but a pipe or a device"
ANSWERS = [
    Case(
        f"C2-{verb}-from-{source.strip('/').replace('/', '-')}",
        reading(verb, source),
        (says,),
    )
    for verb in ("predict", "features", "evaluate")
    for source, says in (
        ("/dev/zero", NO_FILE),
        ("FIFO", NO_FILE),
        ("FOLDER", "is not a file but a directory"),
        ("/nowhere/a.txt", "/nowhere/a.txt is not a file; name"),
    )
] + [
    Case(
        "B2-evaluate-part-test-of-files",
        lambda world: (
            ["evaluate", "--checkpoint", str(world.classifier)] + ["--part", "test"]
        ),
        ("part=test is of a directory that data.path names", "--data.validation FILE"),
    ),
    Case(
        "B2-evaluate-part-test-beside-a-file",
        evaluate("review,who\na,judge\n", "--part", "test"),
        ("leave --part out",),
    ),
    Case(
        "E-evaluate-onto-a-file",
        onto_a_file,
        ("/there cannot be the output directory", "is not a directory; choose another"),
    ),
    Case(
        "E-evaluate-below-a-file",
        below_a_file,
        ("/there/in cannot be the output directory", "choose another name"),
    ),
    Case(
        "E-evaluate-where-nothing-can-be-made",
        evaluate("review,who\na,judge\n", "--output", "/proc/nothing"),
        ("/proc/nothing cannot be written: /proc: ", "choose another output"),
    ),
    Case(
        "E-features-onto-a-directory",
        onto_a_directory,
        ("there.npz is a directory; name a file to write",),
    ),
    Case(
        "E-features-where-nothing-can-be-made",
        features("a\n", "../../../../../../../../../../proc/a.npz"),
        ("cannot be written",),
    ),
    Case(
        "F-features-of-another-format",
        features("a\n", "out.txt"),
        ("must end in .npz or .jsonl, which says the format",),
    ),
    Case(
        "F-features-in-no-directory",
        features("a\n", "none/out.npz"),
        ("none is not a directory; make it first",),
    ),
    Case(
        "F-features-of-a-layer-too-many",
        features("a\n", "out.npz", "--layers", "9"),
        ("layer 9 is none of the model's",),
    ),
    Case(
        "F-features-of-nothing",
        features(""),
        ("There is no text to write to",),
    ),
    Case(
        "F-features-of-latin-1",
        features("one\ncaf\u00e9\n".encode("latin-1")),
        ("new.txt, line 2: byte 0xe9 at 7 is not UTF-8", "iconv"),
    ),
    Case(
        "F-features-of-a-line-without-end",
        features(b"a" * ((1 << 24) + 2)),
        ("new.txt, line 1 has more than 16,777,216 bytes",),
    ),
    Case(
        "F-features-of-a-text-too-long",
        features("judge " * 50),
        ("new.txt, line 1 has ", "the model takes 32. Shorten it"),
    ),
    Case(
        "B2-predict-key-twice",
        predict('{"review": "a", "review": "b"}\n'),
        ("new.jsonl, line 1: 'review' stands twice in an object",),
    ),
    Case(
        "E-predict-id-nan",
        predict('{"id": 1, "review": "a"}\n{"id": NaN, "review": "b"}\n'),
        ("new.jsonl, line 2: NaN is not JSON; write a number, or null",),
    ),
    Case(
        "E-predict-id-infinite",
        predict('{"id": [1e999], "review": "b"}\n'),
        ("new.jsonl, line 1: 1e999 is beyond the largest number",),
    ),
    Case(
        "E-predict-id-half-a-character",
        predict('{"id": {"a": ["\\udc00"]}, "review": "b"}\n'),
        ("new.jsonl, line 1: id holds half of a surrogate pair",),
    ),
    Case(
        "E-predict-column-near-miss",
        predict("reviews,who\na,b\n", name="new.csv"),
        ("new.csv, line 2 has no review; its columns are reviews, who. Did you mean",),
    ),
    Case(
        "F-predict-text-of-a-number",
        predict('{"review": 5}\n'),
        ("new.jsonl, line 1: review=5 must be a text",),
    ),
    Case(
        "F-predict-lines-too-long",
        predict(b"a" * ((1 << 24) + 2), name="new.txt"),
        ("new.txt, line 1 has more than 16,777,216 bytes",),
    ),
    Case(
        "F-predict-latin-1",
        predict("ol\u00e9\n".encode("latin-1"), name="new.txt"),
        ("new.txt, line 1: byte 0xe9 at 2 is not UTF-8",),
    ),
    Case(
        "F-predict-utf-16",
        predict("hello".encode("utf-16"), name="new.txt"),
        ("line 1: byte 0xff at 0 is not UTF-8", "iconv -f UTF-16"),
    ),
    Case(
        "F-predict-blank-line",
        predict("one\n\ntwo\n", name="new.txt"),
        ("new.txt, line 2: review is empty",),
    ),
    Case(
        "F-predict-batch-size",
        predict("one\n", "--batch-size", "0", name="new.txt"),
        ("batch_size=0 must be at least 1",),
    ),
    Case(
        "F-evaluate-unknown-class",
        evaluate("review,who\na,king\n"),
        ("new.csv, line 2: 'king' is none of the classes that the model has",),
    ),
    Case(
        "F-evaluate-labels-here-and-there",
        evaluate(
            '{"review": "a", "who": "judge"}\n{"review": "b"}\n', name="new.jsonl"
        ),
        ("new.jsonl, line 2 has no label, and other rows have",),
    ),
    Case(
        "F-evaluate-an-untrained-model",
        lambda world: (
            ["evaluate", "--checkpoint", str(world.encoder)]
            + ["--data.validation", str(world.table)]
        ),
        ("belongs to no task; fine-tune it by `bert-jax finetune`",),
    ),
]


def tagging(content: str | bytes, *options: str, name: str = "train.txt") -> Command:
    """Fine-tune on a file of words with tags."""
    return finetune(content, *options, task="token-classification", name=name)


TAGGED = "Oslo B-LOC\nis O\n\n" * 8
TAGS = [
    Case(
        "F1-tag-among-others-is-none",
        tagging(TAGGED + "cold JJ\n"),
        ("train.txt, line 25: 'JJ' is not a tag", "as 'B-LOC'", "the words alone"),
    ),
    Case(
        "F1-bilou",
        tagging(TAGGED + "cold U-LOC\n"),
        ("line 25: 'U-LOC' is not a tag", "Write BILOU's L as E and its U as S"),
    ),
    Case(
        "F1-row-too-short",
        tagging(TAGGED + "cold\n"),
        ("train.txt, line 25: 1 in place of the 2 columns of line 1",),
    ),
    Case(
        "F1-word-empty",
        tagging(TAGGED.replace(" ", "\t") + "\tO\n"),
        ("train.txt, line 25: 1 in place of the 2 columns", "parted by a tab"),
    ),
    Case(
        "F1-comment",
        tagging("# doc 1\n" + TAGGED),
        ("line 2: 2 in place of the 3 columns of line 1", "looks like a comment"),
    ),
    Case(
        "F1-conllu",
        tagging("1 a a N _ _ 0 r\n2 b b V _ _ 1 r\n\n" * 8),
        ("train.txt, line 1: the first of 8 columns counts the words", "cut -f2,4"),
    ),
    Case(
        "F1-line-ends-of-old-macs",
        tagging(TAGGED.replace("\n", "\r")),
        ("train.txt, line 1 holds a carriage return; end lines by a line feed",),
    ),
    Case(
        "F1-no-tags",
        tagging("Oslo\nis\n\n" * 8),
        ("train.txt has no tags; nothing can be learned from words alone",),
    ),
    Case(
        "F1-no-entity",
        tagging("Oslo O\nis O\n\n" * 8),
        ("train.txt has no entity: every tag is O",),
    ),
    Case(
        "F1-one-plain-label",
        tagging("Oslo NN\nBergen NN\n\n" * 8),
        ("train.txt: every tag is 'NN'; nothing can be learned",),
    ),
    Case("F1-empty", tagging(""), ("train.txt holds no sentence",)),
    Case(
        "F1-document-starts-alone",
        tagging("-DOCSTART- -X- O O\n\n"),
        ("train.txt holds no sentence; each line must hold a word",),
    ),
    Case(
        "F1-latin-1",
        tagging("Troms\u00f8 B-LOC\n".encode("latin-1")),
        ("train.txt: byte 0xf8 at 5 is not UTF-8", "iconv"),
    ),
    Case(
        "F1-plain-labels-for-a-model-of-entities",
        lambda world: [
            *tagging(TAGGED)(world),
            *("--data.validation", file(world, "dev.txt", "Oslo NN\nis VB\n")),
        ],
        ("dev.txt, line 1: tag 'NN' is none of the model's: O, B-LOC",),
    ),
    Case(
        "F1-jsonl-tags-and-tokens",
        tagging('{"tokens": ["a", "b"], "tags": ["O"]}\n' * 8, name="train.jsonl"),
        ("train.jsonl, line 1: 1 tags for 2 tokens; each must have one",),
    ),
    Case(
        "B2-jsonl-tokens-twice",
        tagging('{"tokens": ["a"], "tokens": ["b"]}\n', name="train.jsonl"),
        ("train.jsonl, line 1: 'tokens' stands twice in an object",),
    ),
]


def choosing(content: str | bytes, *options: str, name: str = "train.tsv") -> Command:
    """Fine-tune on a file of questions with choices."""
    return finetune(content, *options, task="multiple-choice", name=name)


CHOICE = "".join(f"o\ta{i}\tb\tc\td\te\t1\n" for i in range(8))
CHOICES = [
    Case(
        "F-choices-row-too-short",
        choosing(CHOICE + "o\ta\tb\n"),
        ("train.tsv, line 9 has 3 fields; it must have 7",),
    ),
    Case(
        "F-choices-label-too-large",
        choosing(CHOICE + "o\ta\tb\tc\td\te\t4\n"),
        ("train.tsv, line 9: label=4 must be from 0 to 3",),
    ),
    Case(
        "B2-choices-arabic-label",
        choosing(CHOICE + "o\ta\tb\tc\td\te\t\u0661\n"),
        ("train.tsv, line 9: label=", "must be the number of the right choice"),
    ),
    Case(
        "F-choices-empty-answer",
        choosing(CHOICE + "o\ta\tb\t\td\te\t1\n"),
        ("train.tsv, line 9: choice 1 is ''; it must be a text",),
    ),
    Case(
        "E-choices-label-column",
        choosing(
            "sent1,sent2,ending0,ending1,labels\n"
            + "".join(f"a{i},b,c,d,1\n" for i in range(8)),
            name="train.csv",
        ),
        ("train.csv, line 2 has no label; its columns are sent1, ", "mean labels?"),
    ),
    Case(
        "E-choices-columns",
        choosing("context,a,b\nx,y,z\n", name="train.csv"),
        ("line 2 has the columns context, a, b; it must have sent1, sent2, ending0",),
    ),
]

LENGTHS = [
    Case(
        "F2-stride-of-a-short-model",
        lambda world: [*squad(answered())(world), "--data.document-stride", "31"],
        ("document_stride=31 must be at most 21", "pass --data.document-stride 10."),
        # What was read before is kept for the next try.
        leaves=lambda world: {"run", "run/examples"},
    ),
    Case(
        "F2-max-length-beyond-the-model",
        finetune(GOOD, "--data.max-length", "64"),
        ("data.max_length=64 but the model has 32 positions; pass at most that",),
    ),
]


def several_runs(world: World, name: str, best: str) -> str:
    """A directory of runs whose `runs.json` holds one of this name."""
    run = {"name": name, "setting": "s", "seed": 0, "scores": {"accuracy": 0.5}}
    values = {"config": {}, "best": best, "runs": [run]}
    return file(world, "runs.json", json.dumps(values))


def predict_of_runs(name: str, best: str) -> Command:
    """Ask the best of several runs."""

    def command(world: World) -> list[str]:
        several_runs(world, name, best)
        where = ("--checkpoint", str(world.folder))
        return ["predict", *where, "--input", file(world, "a.txt", "a\n")]

    return command


def tuned_again(world: World) -> list[str]:
    """Several runs in a directory whose `runs.json` names one outside of it."""
    several_runs(world, "../other", "../other")
    command = finetune(GOOD, "--seeds", "2")(world)
    command[command.index("--workdir") + 1] = str(world.folder)
    return command


RUNS = [
    Case(
        "C2-best-run-elsewhere",
        predict_of_runs("../other", "../other"),
        ("runs.json lists ", "../other", "restore it from a copy"),
    ),
    Case(
        "C2-best-run-is-none",
        predict_of_runs("rate_1", "rate_2"),
        ("runs.json calls 'rate_2' the best, which is none of its runs",),
    ),
    Case("C2-run-elsewhere-is-not-removed", tuned_again, ("runs.json lists ",)),
    Case(
        "C2-runs-that-are-no-json",
        lambda world: [
            *("predict", "--checkpoint", str(world.folder)),
            *("--input", file(world, "runs.json", "{")),
        ],
        ("runs.json is not JSON that can be read",),
    ),
]

CASES = [*TEXTS, *REGRESSION, *JSON, *ANSWERS, *TAGS, *CHOICES, *LENGTHS, *RUNS]
