"""The names of options and commands in other libraries, and ours for them."""

from collections.abc import Sequence
from typing import NamedTuple


class Theirs(NamedTuple):
    """Names of one thing in another library: options, or commands without a hyphen."""

    names: str
    """As they are written there, separated by spaces."""
    ours: str = ""
    """Options or verbs here, separated by |; a hint has the first that the verb has."""
    note: str = ""
    """What differs here."""
    absent: str = ""
    """Why a verb has none of ours."""


_FILE = "--input|--data.train|--data.path"
_GPUS = "all devices that JAX finds are used; JAX_PLATFORMS=cpu leaves GPUs out"
_OWN_DTYPE = "the model's own type is used"
THEIRS = {
    "Trainer and `run_*.py` of transformers, and other training scripts": (
        Theirs(
            "--model_name_or_path --model_name --model_path --init_checkpoint",
            "--init-from|--model",
        ),
        Theirs(
            "--tokenizer_name --tokenizer --vocab_file --vocab",
            "--tokenizer",
            absent="the model or the dataset has its own",
        ),
        Theirs(
            "--config_name --config --task_name --model_type",
            absent="a task or a configuration stands first",
        ),
        Theirs(
            "--output_dir --output --out_dir --save_dir --save_path --output_path",
            "--workdir|--output",
        ),
        Theirs("--overwrite_output_dir", "--overwrite", absent="name a new --workdir"),
        Theirs("--train_file --train_data --train_path --training_file", _FILE),
        Theirs("--file --input_file --data --dataset --data_path --data_dir", _FILE),
        Theirs("--dataset_name", _FILE, "a file, or tfds:NAME"),
        Theirs(
            "--validation_file --eval_file --dev_file --val_file --val_data",
            "--input|--data.validation",
        ),
        Theirs("--test_file --test_data --predict_file", "--input|--data.test"),
        Theirs(
            "--validation_split_percentage --validation_split --val_split --test_size",
            "--validation-fraction|--data.validation-fraction",
            "a fraction: 0.1, not 10",
        ),
        Theirs(
            "--text_column_name --sentence1_key --text_key --source_column",
            "--text-column",
        ),
        Theirs("--label_column_name --label_key --target_column", "--label-column"),
        Theirs(
            "--learning_rate --lr --learn_rate --peak_lr --max_lr",
            "--optimizer.peak-learning-rate",
        ),
        Theirs(
            "--num_train_epochs --num_epochs --epochs --max_epochs --n_epochs",
            "--num-epochs|--num-steps",
        ),
        Theirs("--max_steps --num_train_steps --max_train_steps", "--num-steps"),
        Theirs(
            "--per_device_train_batch_size --train_batch_size --bs",
            "--batch-size",
            "over all devices",
        ),
        Theirs("--per_device_eval_batch_size --eval_batch_size", "--batch-size"),
        Theirs(
            "--gradient_accumulation_steps --accumulate_grad_batches",
            "--microbatches",
            "the parts of a batch; --batch-size is that of the whole",
        ),
        Theirs(
            "--max_seq_length --max_seq_len --max_length --max_len --block_size",
            "--data.max-length|--data.sequence-length|--sequence-length",
            absent="the model's own length is used",
        ),
        Theirs(
            "--warmup_ratio --warmup_proportion",
            "--optimizer.warmup-share",
            "with --optimizer.warmup-steps 0",
        ),
        Theirs("--num_warmup_steps --warmup", "--optimizer.warmup-steps"),
        Theirs("--wd", "--optimizer.weight-decay"),
        Theirs("--adam_beta1", "--optimizer.beta1"),
        Theirs("--adam_beta2", "--optimizer.beta2"),
        Theirs("--adam_epsilon", "--optimizer.epsilon"),
        Theirs("--grad_clip --gradient_clip_val", "--optimizer.max-grad-norm"),
        Theirs("--lr_scheduler_type --scheduler", "--optimizer.schedule"),
        Theirs("--optim --optimizer", "--optimizer.algorithm"),
        Theirs("--dropout --hidden_dropout", "--model.hidden-dropout-prob"),
        Theirs("--attention_dropout", "--model.attention-probs-dropout-prob"),
        Theirs("--num_layers --n_layers", "--model.num-hidden-layers"),
        Theirs("--num_heads --n_heads", "--model.num-attention-heads"),
        Theirs("--d_model", "--model.hidden-size"),
        Theirs("--freeze --freeze_layers", "--optimizer.frozen-layers"),
        Theirs("--mlm_probability --mask_prob --masked_lm_prob", "--masking.rate"),
        Theirs("--whole_word_mask --do_whole_word_mask", "--masking.unit whole_word"),
        Theirs("--bf16 --amp", "--model.dtype bfloat16", absent=_OWN_DTYPE),
        Theirs(
            "--fp16 --use_amp --mixed_precision",
            "--model.dtype bfloat16",
            "which needs no scale of the loss",
            absent=_OWN_DTYPE,
        ),
        Theirs("--gradient_checkpointing", "--model.remat layer"),
        Theirs("--fsdp --deepspeed", "--mesh.fsdp", "a number of devices"),
        Theirs("--save_steps --save_every", "--checkpoint-every"),
        Theirs("--eval_steps --evaluation_steps", "--eval-every"),
        Theirs("--logging_steps --log_interval", "--log-every"),
        Theirs("--save_total_limit", "--keep-checkpoints"),
        Theirs(
            "--early_stopping_patience --early_stopping",
            "--patience",
            "evaluations without a better score",
        ),
        Theirs("--report_to --logger --use_wandb", "--report"),
        Theirs("--random_seed --random_state", "--seed"),
        Theirs(
            "--resume_from_checkpoint --resume",
            absent="the same command with the same --workdir goes on",
        ),
        Theirs(
            "--do_train --do_eval --do_predict", absent="the verb says what is done"
        ),
        Theirs(
            "--push_to_hub --hub_model_id",
            absent="`convert export --to huggingface` writes what can be uploaded",
        ),
        Theirs("--trust_remote_code", absent="no code of a model is run"),
        Theirs("--torch_compile", absent="every step is compiled"),
        Theirs("--group_by_length", absent="it is always done; --data.num-buckets"),
        Theirs("--num_labels", absent="the classes are those of the training file"),
        Theirs(
            "--do_lower_case --uncased", absent="the tokenizer knows; `vocab --cased`"
        ),
        Theirs(
            "--load_best_model_at_end --save_best_model --save_strategy "
            "--eval_strategy --evaluation_strategy --metric_for_best_model",
            absent="the best checkpoint is kept, and the newest ones",
        ),
        Theirs(
            "--device --gpu --gpus --use_gpu --cuda --no_cuda --use_cpu", absent=_GPUS
        ),
        Theirs(
            "--num_workers --dataloader_num_workers --preprocessing_num_workers",
            "--workers",
            absent="none are needed",
        ),
        Theirs("run_mlm.py run_clm.py", "pretrain"),
        Theirs("run_glue.py run_classification.py", "finetune text-classification"),
        Theirs("run_ner.py", "finetune token-classification"),
        Theirs("run_qa.py", "finetune question-answering"),
        Theirs("run_swag.py", "finetune multiple-choice"),
        Theirs("train fit", "finetune|pretrain"),
    ),
    "sentence-transformers, besides those of Trainer": (
        Theirs("--loss", "--data.sentence-pairs.objective"),
        Theirs("--scale", "--data.sentence-pairs.temperature", "1 / scale"),
        Theirs("--matryoshka_dims", "--data.sentence-pairs.dimensions"),
        Theirs("--pooling_mode", "--data.sentence-pairs.pooling|--pooling"),
        Theirs("--normalize_embeddings", "--normalize"),
        Theirs("--prompt_name", "--prompt|--query-prompt"),
        Theirs("--checkpoint_save_steps", "--checkpoint-every"),
        Theirs("--queries --corpus_file", "--input"),
        Theirs("--cross_encoder", "--reranker"),
        Theirs("encode", "embed"),
        Theirs("semantic_search", "search"),
    ),
    "fastText": (
        Theirs("-input", _FILE, "with a header: text,label"),
        Theirs("-autotune-validation", "--data.validation"),
        Theirs("-test", "--input|--data.test"),
        Theirs(
            "-lr",
            "--optimizer.peak-learning-rate",
            "2e-5 to 5e-5 to fine-tune, not 0.1",
        ),
        Theirs("-epoch", "--num-epochs"),
        Theirs("-dim", "--model.hidden-size", absent="the model has its own"),
        Theirs("-label", "--label-column", "a column, not __label__ in the text"),
        Theirs("-pretrainedVectors", "--init-from"),
        Theirs("-thread", absent="all cores are used"),
        Theirs(
            "-wordNgrams -minn -maxn -ws -bucket -minCount -minCountLabel -neg "
            "-lrUpdateRate",
            absent="the model reads all tokens in their order",
        ),
        Theirs("supervised", "finetune text-classification"),
        Theirs("skipgram cbow", "pretrain"),
        Theirs("test", "evaluate"),
        Theirs("predict-prob", "predict"),
        Theirs("print-sentence-vectors", "embed"),
        Theirs("quantize", "convert shrink"),
    ),
    "spaCy": (
        Theirs("--paths.train --train", _FILE),
        Theirs("--paths.dev --dev --valid --val", "--input|--data.validation"),
        Theirs("--paths.vectors --paths.init_tok2vec", "--init-from"),
        Theirs("--training.max_epochs", "--num-epochs"),
        Theirs("--training.max_steps", "--num-steps"),
        Theirs("--training.patience", "--patience"),
        Theirs("--training.eval_frequency", "--eval-every"),
        Theirs("--training.dropout", "--model.hidden-dropout-prob"),
        Theirs("--training.seed --system.seed", "--seed"),
        Theirs("--training.optimizer.learn_rate", "--optimizer.peak-learning-rate"),
        Theirs("--nlp.batch_size", "--batch-size"),
        Theirs("--gpu-id", absent=_GPUS),
        Theirs("-o", "--workdir|--output"),
        Theirs("benchmark-accuracy", "evaluate"),
        Theirs("apply", "predict"),
        Theirs("assemble package", "convert export"),
    ),
}
"""By library: its names, in the order of docs/migrating.md."""


def plain(option: str) -> str:
    """Return an option with two hyphens before it, and others in place of _."""
    return "--" + option.lstrip("-").replace("_", "-")


_NAMED = [
    (name, theirs)
    for library in THEIRS.values()
    for theirs in library
    for name in theirs.names.split()
]
COMMANDS = {name: theirs.ours for name, theirs in _NAMED if name[0] != "-"}
"""Our verbs, separated by |, by the name of a command."""
_OPTIONS = {plain(name): theirs for name, theirs in _NAMED[::-1] if name[0] == "-"}
_OPTIONS |= {name: theirs for name, theirs in _NAMED if name[0] == "-" != name[1]}


def of_option(option: str, options: Sequence[str]) -> tuple[str, str]:
    """Return what a verb with `options` has for another library's, and a note on it.

    Either is empty if there is none.
    """
    theirs = _OPTIONS.get(option) or _OPTIONS.get(plain(option))
    if theirs is None:
        return "", ""
    ours = [name for name in theirs.ours.split("|") if name.split(" ")[0] in options]
    return (ours[0], theirs.note) if ours else ("", theirs.absent)
