"""Bad inputs: files to learn from."""

from bad_case import Case
from task_commands import (
    GOOD,
    NUMBERS,
    answered,
    file,
    finetune,
    objects,
    regression,
    squad,
)

TEXTS = [
    Case(
        "E-label-column-near-miss",
        finetune(GOOD, "--label-column", "lable"),
        ("train.csv, line 2 has no lable", "columns are text, label", "mean label?"),
    ),
    Case(
        "E-label-column-unlike-any",
        finetune(GOOD, "--label-column", "sentiment"),
        ("has no sentiment; its columns are text, label.", "--label-column"),
    ),
    Case(
        "E-text-column-of-many",
        finetune(
            ",".join(f"c{i}" for i in range(300)) + "\n" + ",".join(["a"] * 300) + "\n",
            "--text-column",
            "review",
        ),
        ("line 2 has no review; its columns are c0, c1, ", "c15, … and 284 others."),
    ),
    Case(
        "E-text-column-near-miss",
        finetune(GOOD, "--text-column", "Text"),
        ("line 2 has no Text; its columns are text, label. Did you mean text?",),
    ),
    Case(
        "E-label-column-with-blanks",
        finetune(GOOD.replace("text,label", "text, label")),
        ("has no label; its columns are text, ' label'. Did you mean ' label'?",),
    ),
    Case(
        "E-columns-parted-by-semicolons",
        finetune(GOOD.replace(",", ";"), "--delimiter", ","),
        ("line 2 has the columns text;label; name those with the text",),
    ),
    Case(
        "E-columns-parted-by-commas",
        finetune(GOOD, "--delimiter", ";"),
        ("name those with the text (--delimiter is ';') by --text-column.",),
    ),
    Case(
        "E-json-field-near-miss",
        finetune(objects(), "--label-column", "labels", name="a.jsonl"),
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
        ("a.jsonl, line 9 has the columns txt, label; name those", "--text-column"),
    ),
    Case(
        "C-header-with-escapes",
        finetune("text,\x1b[31mlabel\x1b[0m\nhello,a\nbye,b\n"),
        ("has no label; its columns are text, '\\x1b[31mlabel\\x1b[0m'",),
    ),
    Case(
        "F-csv-header-twice",
        finetune("text,label,label\na,b,c\n"),
        ("train.csv, line 1 names label twice; each column needs its own name",),
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
        ("train.csv, line 22: unexpected end of data; a field with a separator",),
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
        ("label is 'a' in all 20 rows; there must be at least two classes",),
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
        ("labels has 'a' twice, as classes 0 and 2; each class needs a name",),
    ),
    Case(
        "B3-class-without-a-name",
        finetune(GOOD, "--data.labels", "a", ""),
        ("labels has ''; a class name must not be blank",),
    ),
    Case(
        "F-class-not-named",
        finetune(GOOD, "--data.labels", "a", "c"),
        ("'b' is none of the classes that the model has (a, c)",),
    ),
]

NUMBER_RULE = "must be a finite number"
JSON_NUMBERS = objects().replace('"a"', "0.5").replace('"b"', "1")
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
        regression(JSON_NUMBERS + f'{{"text": "b", "label": {number}}}\n', "a.jsonl"),
        ("a.jsonl, line ", *says),
    )
    for name, number, says in (
        ("of-400-digits", "9" * 400, ("must be a finite number",)),
        ("of-5000-digits", "9" * 5000, ("has 5000 digits; at most 1000",)),
        ("nan", "NaN", ("NaN is not JSON; write a number, or null",)),
        ("1e999", "1e999", ("1e999 is beyond the largest number of 64 bits",)),
        ("true", "true", ("must be a finite number",)),
    )
]

JSON = [
    Case(
        "B2-jsonl-key-twice",
        finetune(objects('{"text": "x", "label": "a", "label": "b"}'), name="a.jsonl"),
        ("a.jsonl, line 9: the key 'label' occurs twice in an object; keep one",),
    ),
    Case(
        "B2-squad-key-twice",
        squad(answered('"context": "Oslo is cold.", "context": "Bergen."')),
        ("train.json", "'context' occurs twice in an object"),
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
        ("train.json has no data; its fields are version",),
    ),
    Case(
        "F-squad-impossible-is-a-word",
        squad(answered(extra=', "is_impossible": "perhaps"')),
        ("'is_impossible' holds a string; it must be a boolean",),
    ),
    Case("F-squad-lines", squad('{"data": []}\n{"data": []}'), ("Extra data",)),
    Case(
        "F-squad-latin-1",
        squad(answered('"context": "Bod\u00f8"').encode("latin-1")),
        ("train.json: byte 0xf8 at ", "is not UTF-8"),
    ),
]

CASES = [*TEXTS, *REGRESSION, *JSON]
