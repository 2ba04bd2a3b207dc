"""The methods of `Predictor` that need a model which was fine-tuned on a task."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.inference.arguments import (
    is_several,
    one_or_several,
    require_count,
    require_text,
    require_texts,
    require_texts_or_pairs,
    require_two_sides,
)
from bert_jax.inference.batching import predict_examples
from bert_jax.inference.thresholds import most_probable
from bert_jax.pretrained import Model
from bert_jax.storage.files import JsonObject
from bert_jax.tables.rows import TableRow
from bert_jax.tasks.answers.spans import require_null_answers
from bert_jax.tasks.kinds import finetuning_task, task_name_of
from bert_jax.tasks.predictions import Prediction

TextOrPair: TypeAlias = str | tuple[str, str]


class FinetunedPredictor:
    """Predictions of a fine-tuned model, with the attributes of `Predictor`."""

    config: BertConfig
    data: ExamplesConfig

    @property
    def model(self) -> Model:
        """The model as it is in memory."""
        raise NotImplementedError

    @one_or_several
    def classify(
        self, texts: Sequence[TextOrPair], batch_size: int = 32, top_k: int = 0
    ) -> list[Prediction]:
        """Return the prediction of a fine-tuned model for each text or pair of texts.

        Args:
            texts: a list; or one text, whose prediction is returned alone.

        Returns:
            For one class: `label` and `probabilities` (of the `top_k` best; 0: all);
            for several: `labels` and the same; for a number: `value`.

        Raises:
            ValueError: the model was not fine-tuned on texts.
        """
        parts = require_texts_or_pairs("texts", texts)
        columns = ("first", "second")[: max(map(len, parts), default=1)]
        rows = [dict(zip(columns, part, strict=True)) for part in parts]
        data = self.data.changed(text_columns=columns)
        values = self._predict(rows, "text-", "classify", batch_size, data)
        return most_probable(self.config, values, top_k)

    @one_or_several
    def tag(self, texts: Sequence[str], batch_size: int = 32) -> list[Prediction]:
        """Return the `entities` in each text, with their `start` and `end` in it.

        Of one text in place of a list, its prediction is returned alone.

        Raises:
            ValueError: the model was not fine-tuned to tag.
        """
        rows = [{"text": text} for text in require_texts("texts", texts)]
        return self._predict(rows, "token-classification", "tag", batch_size)

    def answer(
        self,
        question: str | Sequence[str],
        context: str | Sequence[str],
        null_threshold: float | None = None,
        batch_size: int = 32,
    ) -> Any:
        """Return the `answer` to a question in a text, its `start` and `end`, and more.

        Args:
            question: one; or a list, for a list of predictions.
            context: the text; of several questions the one text of all, or a list.
            null_threshold: there is no answer if `null_odds` is above this; None: the
                run's own threshold.
            batch_size: windows of the text that are computed at once.

        Raises:
            ValueError: the model was not fine-tuned on questions, or `null_threshold`
                is given and it was on answerable ones alone.
        """
        several, names = is_several(question), ("question", "context")
        if several and isinstance(context, str):
            question = list(question)
            context = [context] * len(question)
        pairs = require_two_sides(question, context, names)
        rows: list[JsonObject] = [dict(zip(names, pair, strict=True)) for pair in pairs]
        data = self.data
        if null_threshold is not None:
            require_null_answers(self.config, f"null_threshold={null_threshold}")
            data = data.changed(null_threshold=null_threshold)
        answers = self._predict(rows, "question-answering", "answer", batch_size, data)
        return answers if several else answers[0]

    def choose(
        self, context: str, choices: Sequence[str], batch_size: int = 32
    ) -> Prediction:
        """Return the number of the most probable `choice`, and all `probabilities`.

        Raises:
            ValueError: the model was not fine-tuned to choose.
        """
        require_text("context", context)
        row = {"context": context, "choices": require_texts("choices", choices)}
        return self._predict([row], "multiple-choice", "choose", batch_size)[0]

    def _predict(
        self,
        rows: list[JsonObject],
        kind: str,
        method: str,
        batch_size: int,
        data: ExamplesConfig | None = None,
    ) -> list[Prediction]:
        """Return predictions by a model of a task whose name begins with `kind`."""
        require_count("batch_size", batch_size)
        name = task_name_of(self.config)
        if not name.startswith(kind):
            raise ValueError(
                f"The model was fine-tuned on {name}, but {method} is for another "
                "task; load a model that was fine-tuned on that."
            )
        task = finetuning_task(name, data or self.data, self.config)
        examples = [
            task.example_without_label(TableRow(row, f"text {number}"))
            for number, row in enumerate(rows)
        ]
        task.check(examples)  # a model of pairs takes no single texts
        return predict_examples(task, self.model, examples, batch_size)
