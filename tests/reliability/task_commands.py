"""Commands on files of examples, for the rows of bad inputs."""

import json
from collections.abc import Callable

from bad_case import World

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
