"""Bad inputs: evaluation, prediction, tags and choices."""

import os

from bad_case import Case, World
from task_commands import GOOD, NUMBERS, Command, file, finetune


def evaluate(content: str | bytes, *options: str, name: str = "new.csv") -> Command:
    """Score the small classifier on a file of this content."""
    return lambda world: [
        *("evaluate", "--model", str(world.classifier)),
        *("--input", file(world, name, content), *options),
    ]


def predict(content: str | bytes, *options: str, name: str = "new.jsonl") -> Command:
    """Ask the small classifier for a file of this content."""
    return lambda world: [
        *("predict", "--model", str(world.classifier)),
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
        return [verb, "--model", str(world.classifier), "--input", path]

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
            ["evaluate", "--model", str(world.classifier)] + ["--part", "test"]
        ),
        ("part=test needs data.path", "--input FILE"),
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
        ("must end in .npz or .jsonl, to define the format",),
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
        ("new.jsonl, line 1: the key 'review' occurs twice in an object",),
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
        ("new.jsonl, line 2 has no label, but other rows have",),
    ),
    Case(
        "F-evaluate-an-untrained-model",
        lambda world: (
            ["evaluate", "--model", str(world.encoder)] + ["--input", str(world.table)]
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
        ("train.txt, line 25: 1 columns, but line 1 has 2",),
    ),
    Case(
        "F1-word-empty",
        tagging(TAGGED.replace(" ", "\t") + "\tO\n"),
        ("train.txt, line 25: 1 columns, but line 1 has 2", "separated by a tab"),
    ),
    Case(
        "F1-comment",
        tagging("# doc 1\n" + TAGGED),
        ("line 2: 2 columns, but line 1 has 3", "looks like a comment"),
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
        ("train.jsonl, line 1: the key 'tokens' occurs twice in an object",),
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
        "E-choices-field",
        choosing(
            '{"context": "a", "choises": ["b", "c"], "label": 0}\n', name="a.jsonl"
        ),
        ("line 1 has no choices; its columns are context, choises", "mean choises?"),
    ),
    Case(
        "E-choices-columns",
        choosing("context,a,b\nx,y,z\n", name="train.csv"),
        ("line 2 has the columns context, a, b; it must have sent1, sent2, ending0",),
    ),
]


WEIGHTS_AND_SCORES = [
    Case(
        "class-weights-of-numbers",
        finetune(NUMBERS, "--class-weights", "balanced", task="text-regression"),
        ("class_weights=balanced needs one class", "task=text-regression"),
    ),
    Case(
        "balanced-answers",
        finetune("{}", "--data.balance", task="question-answering", name="train.json"),
        ("data.balance=True needs one class", "task=question-answering"),
    ),
    Case(
        "class-weights-of-balanced-classes",
        finetune(GOOD, "--class-weights", "balanced", "--data.balance"),
        ("has no effect with data.balance",),
    ),
    *(
        Case(
            f"compute-metrics-{name}",
            finetune(GOOD, "--compute-metrics", value),
            (f"compute_metrics={value}", *says),
        )
        for name, value, says in [
            ("without-function", "my_scores", ("must be MODULE:FUNCTION",)),
            ("absent", "no_such_module:f", ("ModuleNotFoundError", "current dir")),
            ("absent-function", "json:lods", ("AttributeError",)),
            ("not-callable", "math:pi", ("3.14", "name a function")),
        ]
    ),
    Case(
        "test-file-absent",
        finetune(GOOD, "--data.test", "absent.csv"),
        ("absent.csv",),
    ),
    Case(
        "test-file-of-other-classes",
        lambda world: [
            *finetune(GOOD)(world),
            *("--data.test", file(world, "test.csv", "text,label\na,seldom\n")),
        ],
        ("test.csv, line 2: 'seldom' is none of the classes",),
    ),
]

CASES = [*ANSWERS, *TAGS, *CHOICES, *WEIGHTS_AND_SCORES]
