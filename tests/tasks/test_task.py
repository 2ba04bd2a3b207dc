"""The interfaces of tasks: no unused parameters, and an objective that is complete."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax.tasks
from bert_jax.tasks.task import Evaluation, Task
from bert_jax.training.step import check_objective

INTERFACES = {"Task", "ComparedTask", "FinetuningTask", "TextTask", "PairVectorsTask"}


def task_classes(source: str) -> list[ast.ClassDef]:
    """The interfaces and the classes that derive from them, by name."""
    return [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
        and INTERFACES & {node.name, *map(ast.unparse, node.bases)}
    ]


def unused_parameters(source: str) -> set[str]:
    """The parameters that a method of a task does not read, as Class.method: name."""
    unused = set()
    for owner in task_classes(source):
        for method in owner.body:
            if not isinstance(method, ast.FunctionDef):
                continue
            if "abc.abstractmethod" in map(ast.unparse, method.decorator_list):
                continue
            if ast.unparse(method.body[-1]) == "raise NotImplementedError":
                continue
            a = method.args
            parameters = {p.arg for p in [*a.posonlyargs, *a.args, *a.kwonlyargs]}
            parameters |= {p.arg for p in (a.vararg, a.kwarg) if p is not None}
            read = {
                node.id
                for statement in method.body
                for node in ast.walk(statement)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
            }
            names = parameters - read - {"self", "cls"}
            unused |= {f"{owner.name}.{method.name}: {name}" for name in names}
    return unused


def sources() -> list[str]:
    folder = Path(bert_jax.tasks.__file__).parent
    return [path.read_text("utf-8") for path in sorted(folder.rglob("*.py"))]


def test_unused_parameters_by_hand():
    source = """
class One(Task):
    def used(self, a, *, b): return a + (lambda: b)()
    def unused(self, a, b, *c): del b; return c
    @abc.abstractmethod
    def abstract(self, a): ...
    def absent(self, a): raise NotImplementedError
class Other(Base):
    def unused(self, a): ...
"""
    assert unused_parameters(source) == {"One.unused: a", "One.unused: b"}


def test_no_method_of_a_task_has_an_unused_parameter():
    unused = set().union(*map(unused_parameters, sources()))
    defaults = {
        "Task": "corrupt: key, corrupt_at_step: step, flops: batch",
        "FinetuningTask": "classes: example, label_warnings: examples, "
        "report_kind: predictions, score_warnings: split, scores_among: outputs, "
        "suits: data, suits: model, targets: examples",
    }
    # Numbers have no names and no temperature, every pair is accepted, and what a kind
    # is for is known by the files alone or by the model alone.
    needless = {
        "NumberTask": "distillation_loss: temperature, label_warnings: examples, "
        "suits: data",
        "PairVectorsTask": "_prompt_names: example, _prompt_names: text, "
        "check: examples, suits: model",
        "ContrastivePairsTask": "has_label: example",
        "PairRankingTask": "check: examples, suits: model",
        "TokenClassificationTask": "report_kind: predictions",
    }
    named = (defaults | needless).items()
    expected = {f"{owner}.{x}" for owner, names in named for x in names.split(", ")}
    assert unused == expected, "of no effect"


def test_every_task_is_final():
    """What trains is final, and an interface is not."""
    classes = [node for source in sources() for node in task_classes(source)]
    names = {node.name for node in classes}
    assert names == INTERFACES | {
        "ClassTask",
        "ClassesTask",
        "ContrastivePairsTask",
        "MultipleChoiceTask",
        "NumberTask",
        "PairRankingTask",
        "PretrainingTask",
        "QuestionAnsweringTask",
        "ScoredPairsTask",
        "TokenClassificationTask",
    }
    for node in classes:
        decorators = set(map(ast.unparse, node.decorator_list))
        assert ("final" in decorators) == (node.name not in INTERFACES), node.name


@final
class Constant(Task):
    """A task with given objective, sums and counts, all of which are 1."""

    objective = ()

    def __init__(
        self, objective: tuple[str, ...], sums: tuple[str, ...], counts: tuple[str, ...]
    ) -> None:
        self.objective, self.sums, self.counts = objective, sums, counts

    def init_params(self, key: Any) -> Any:
        return {"weight": jnp.ones(())}

    def row_numbers(self, step: int) -> np.ndarray:
        return np.arange(4)

    def batch(self, step: int) -> dict[str, np.ndarray]:
        return {"row": self.row_numbers(step)}

    def count(self, batch: Any) -> Any:
        return {name: jnp.ones(()) for name in self.counts}

    def loss(self, params: Any, batch: Any, key: Any) -> Any:
        return {name: (jnp.ones(()), jnp.ones(())) for name in self.sums}

    def evaluate(self, params: Any, batch: Any) -> Any:
        return self.loss(params, batch, None), {}

    def evaluation_batches(self) -> Iterator[dict[str, np.ndarray]]:
        yield self.batch(0)

    def num_tokens(self, batch: Any) -> int:
        return 0

    def flops(self, batch: Any) -> float:
        return 0.0


def check(task: Task) -> None:
    batch = {name: jnp.asarray(values) for name, values in task.batch(0).items()}
    check_objective(task, task.init_params(jax.random.key(0)), batch)


def test_an_objective_that_evaluate_or_count_lacks_is_refused():
    both = ("mlm_loss", "nsp_loss")
    check(Constant(both, (*both, "accuracy"), both))
    message = (
        "Constant.evaluate returns mlm_loss and not nsp_loss, which objective names"
    )
    with pytest.raises(ValueError, match=message):
        check(Constant(both, ("mlm_loss",), both))
    message = "Constant.count returns nothing and not mlm_loss, nsp_loss, which objecti"
    with pytest.raises(ValueError, match=message):
        check(Constant(both, both, ()))


def test_defaults():
    """Nothing is corrupted, the means are the scores, and the lowest loss is best."""
    task = Constant(("a",), ("a",), ("a",))
    batch = {"row": jnp.arange(4)}
    assert task.corrupt(batch, jax.random.key(0)) is batch
    assert task.corrupt_at_step(batch, jax.random.key(0), jnp.int32(3)) is batch
    assert task.score(Evaluation({"loss": 2.0, "a": 2.0}, [])) == {
        "loss": 2.0,
        "a": 2.0,
    }
    assert task.selection_score({"loss": 2.0}) > task.selection_score({"loss": 3.0})
