"""The order of the layers: a file imports only from those above it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "bert_jax"

# Modules from the top down. A line is a layer; within it, too, order holds.
ORDER = """
signals messages checks files backend command \
config.model config.data config.training config.finetuning config \
config_json manifest runs_file whole verified_once remote tokenizer_backends \
tokenization wordpiece
data data.worker_lifetime data.prose data.installed_documentation data.sources \
data.structured data.paragraph_origins data.documents vocabulary data.duplicates \
data.corpus data.pairs data.packing \
data.shards data.dataset_manifest data.records data.passes data.chunks \
data.joining data.workers data.beam data.unfinished data.prepare \
data.pipeline data.buckets data.examples data.example_cache \
model model.layers model.attention model.encoder model.heads \
model.pretraining model.finetuning model.apply flops rows masking_units masking \
losses metrics squad_metrics entity_metrics sharding processes whole_steps \
retries checkpoint
tasks tasks.task tasks.tables tasks.files tasks.problem tasks.glue tasks.texts \
tasks.text_classification tasks.squad_rows tasks.squad_answers tasks.squad_files \
tasks.squad tasks.conll tasks.ner_rows tasks.ner_scores tasks.ner tasks.choices \
tasks.multiple_choice tasks.problems tasks.class_names tasks.lengths tasks.splits \
tasks.finetuning tasks.pretraining tasks.unigram
training training.optimizer training.state training.checkpoints training.resume \
training.start training.gradients training.step training.neighbours \
training.distributed training.faults training.evaluation training.profile \
training.tensorboard training.upload training.report training.lock \
training.watchdog training.compilation_cache training.loop
convert convert.names convert.model_files convert.tensor_files \
convert.tensor_names convert.embedding \
convert.huggingface_config convert.comparison convert.receipts \
convert.exported_files convert.added_tokens \
convert.tokenizers convert.tokenizer_export \
convert.sentencepiece_files convert.huggingface convert.tf1_files \
convert.opening convert.extend convert.tf1 convert.model_card convert.export \
convert.stablehlo
workdir plan ahead_of_time saving_memory init_from tuning inference evaluation \
features arguments model_inputs predict prediction_lines \
inspection doctor benchmark.figures benchmark.synthetic benchmark.devices \
benchmark.pytorch_child benchmark.pytorch benchmark.comparison benchmark.training \
benchmark.inference benchmark.reading benchmark.preparation benchmark.command \
benchmark convert.verbs
run sweeps demo_report demo pretraining_verb finetuning_verbs cli __main__ \
benchmark.__main__
""".split()

NO_JAX = {"jax", "jaxlib", "flax", "optax", "orbax", "chex"}
NO_TENSORFLOW = {"tensorflow", "tensorflow_datasets", "keras"}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> set[str]:
    """Every module that a file imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


FILES = {module_name(path): path for path in PACKAGE.rglob("*.py")}


def test_every_file_has_its_place():
    assert set(FILES) - {""} == set(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_imports_come_from_above(name):
    ours = {
        module.removeprefix("bert_jax.")
        for module in imports(FILES[name])
        if module.startswith("bert_jax.")
    } & set(ORDER)
    later = {module for module in ours if ORDER.index(module) >= ORDER.index(name)}
    assert not later, f"{name} imports {later}, which come after it"


@pytest.mark.parametrize("name", ORDER)
def test_libraries_stay_where_they_belong(name):
    roots = {module.split(".")[0] for module in imports(FILES[name])}
    first_with_jax = ORDER.index("model")
    if ORDER.index(name) < first_with_jax:
        assert not roots & NO_JAX
    if name not in ("data.structured", "data.pipeline"):
        assert not roots & NO_TENSORFLOW


@pytest.mark.parametrize("name", ORDER)
def test_files_and_functions_stay_small(name):
    text = FILES[name].read_text()
    assert len(text.splitlines()) <= 300
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name != "fit":
            last = node.end_lineno
            assert last is not None
            docstring = (ast.get_docstring(node) or "").splitlines()
            lines = last - node.lineno + 1 - len(docstring)
            assert lines <= 40, f"{name}.{node.name} has {lines} lines"


def test_importing_the_package_loads_neither_jax_nor_tensorflow():
    code = (
        "import sys, bert_jax;"
        "print([m for m in ('jax', 'tensorflow') if m in sys.modules])"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == "[]"


def test_public_names_are_all_there():
    import bert_jax

    for name in bert_jax.__all__:
        assert getattr(bert_jax, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = bert_jax.nothing
