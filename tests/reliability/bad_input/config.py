"""Bad inputs: configuration files, and numbers in them."""

from bad_case import Case
from option_commands import HUGE, finetune, in_file, pretrain, with_text, words

CONFIG_FILES = [
    Case(
        "B-masking-unit",
        in_file("config = PretrainConfig(masking=MaskingConfig(unit='whole-word'))"),
        ("unit='whole-word'", "whole_word"),
    ),
    Case(
        "B1-algorithm",
        in_file("config = PretrainConfig(optimizer=OptimizerConfig(algorithm='LAMB'))"),
        ("algorithm='LAMB'", "adamw, lamb", "did you mean 'lamb'?"),
    ),
    Case(
        "B1-hidden-act",
        in_file("config = PretrainConfig(model=BertConfig(hidden_act='swish'))"),
        ("hidden_act='swish'", "gelu, gelu_new, relu"),
    ),
    Case(
        "B1-attention",
        in_file("config = PretrainConfig(model=BertConfig(attention='casual'))"),
        ("did you mean 'causal'?",),
    ),
    Case(
        "B1-remat",
        in_file("config = PretrainConfig(model=BertConfig(remat='layers'))"),
        ("remat='layers'", "did you mean 'layer'?"),
    ),
    Case(
        "B1-dtype",
        in_file("config = PretrainConfig(model=BertConfig(dtype='int7'))"),
        ("dtype='int7'", "float32, bfloat16"),
    ),
    Case(
        "B1-log-examples",
        in_file("config = PretrainConfig(log_examples='false')"),
        ("log_examples='false'", "True or False"),
    ),
    Case(
        "B1-list-for-a-tuple",
        in_file("config = PretrainConfig(model=BertConfig(labels=['a', 'b']))"),
        ("labels=", "write ('a', 'b')"),
    ),
    Case(
        "B1-float-for-steps",
        in_file("config = PretrainConfig(num_steps=1e6)"),
        ("num_steps=1000000.0", "whole number"),
    ),
    Case(
        "B1-text-for-a-rate",
        in_file("o = OptimizerConfig(peak_learning_rate='1e-4')"),
        ("peak_learning_rate='1e-4'", "must be a number"),
    ),
    Case(
        "B1-dict-for-the-model",
        in_file("config = PretrainConfig(model={'hidden_size': 128})"),
        ("model={'hidden_size': 128}", "BertConfig"),
    ),
    Case(
        "B1-class-for-the-model",
        in_file("config = PretrainConfig(model=BertConfig)"),
        ("must be a BertConfig",),
    ),
    Case("B1-nul", in_file("config = PretrainConfig(init_from='a\\0b')"), ("NUL",)),
    Case(
        "B2-config-exits-0",
        in_file("import sys; sys.exit(0)"),
        ("config.py fails: SystemExit: 0", "correct it"),
    ),
    Case("B2-config-exits", in_file("exit()"), ("config.py fails: SystemExit",)),
    Case(
        "D-config-raises-BaseException",
        in_file("raise BaseException('stop')"),
        ("fails: BaseException: stop",),
    ),
    Case(
        "D-config-raises-GeneratorExit",
        in_file("raise GeneratorExit"),
        ("fails: GeneratorExit",),
    ),
    Case(
        "D-config-recursion", in_file("def f(): f()\nf()"), ("fails: RecursionError",)
    ),
    Case("config-syntax", in_file("config = ("), ("fails: SyntaxError",)),
    Case(
        "config-escapes",
        in_file("raise ValueError('\\x1b[2J\\nsecond line')"),
        ("\\x1b[2J second line",),
    ),
    Case(
        "config-unknown-field",
        in_file("config = PretrainConfig(num_stps=3)"),
        ("num_stps",),
    ),
    Case(
        "config-unbound",
        in_file("conf = PretrainConfig()"),
        ("bind the name config to a PretrainConfig",),
    ),
    Case(
        "config-of-fine-tuning",
        in_file("config = FinetuneConfig()"),
        ("bind the name config to a PretrainConfig",),
    ),
    Case(
        "config-missing",
        words("pretrain", "WORLD/none.py", "--workdir", "WORLD/run"),
        ("none.py is not a file", "name a configuration file"),
    ),
    Case(
        "config-is-a-directory",
        words("pretrain", "WORLD", "--workdir", "WORLD/run"),
        ("is not a file",),
    ),
    Case(
        "config-of-bytes",
        lambda world: (
            (world.folder / "c.py").write_bytes(b"\xff\xfe\x00")
            and ["pretrain", str(world.folder / "c.py")]
        ),
        ("c.py fails",),
    ),
]
NUMBERS = [
    Case(
        "B2-epsilon",
        pretrain("--optimizer.epsilon", "1e-320"),
        ("epsilon=", "0 in float32"),
    ),
    Case(
        "B2-learning-rate",
        pretrain("--optimizer.peak-learning-rate", "1e-60"),
        ("peak_learning_rate=1e-60", "0 in float32"),
    ),
    Case(
        "B2-learning-rate-infinite",
        pretrain("--optimizer.peak-learning-rate", "1e39"),
        ("infinite in float32", "3.4e+38"),
    ),
    Case(
        "B2-layer-norm-eps",
        pretrain("--model.layer-norm-eps", "1e-50"),
        ("layer_norm_eps=1e-50", "0 in float32"),
    ),
    Case(
        "B2-initializer-range",
        pretrain("--model.initializer-range", "1e300"),
        ("initializer_range=", "infinite in float32"),
    ),
    Case(
        "B2-weight-decay",
        pretrain("--optimizer.weight-decay", "1e-45"),
        ("weight_decay=1e-45", "0 in float32"),
    ),
    Case(
        "B2-beta2",
        pretrain("--optimizer.beta2", "0.99999999999"),
        ("beta2=0.99999999999", "1 in float32"),
    ),
    Case(
        "B2-nan",
        pretrain("--optimizer.weight-decay", "nan"),
        ("weight_decay=nan", "finite"),
    ),
    Case(
        "D-vocab-size",
        with_text("vocab", "--vocab-size", HUGE),
        ("vocab_size=9999", "too large", "2147483647"),
    ),
    Case(
        "D-vocab-size-of-5000-digits",
        with_text("vocab", "--vocab-size", "9" * 5000),
        ("--vocab-size has too many digits",),
    ),
    Case(
        "D-vocab-size-negative",
        with_text("vocab", "--vocab-size", "-" + HUGE),
        ("too large",),
    ),
    Case(
        "D-hidden-size",
        pretrain("--model.hidden-size", str(10**12)),
        ("hidden_size=1000000000000", "too large"),
    ),
    Case(
        "D-hidden-size-of-parameters",
        pretrain("--model.hidden-size", str(2**24)),
        ("hidden_size=16777216", "parameters", "lower"),
    ),
    Case(
        "D-layers-of-parameters",
        pretrain("--model.num-hidden-layers", str(10**9)),
        ("num_hidden_layers=1000000000", "parameters"),
    ),
    Case(
        "D-vocabulary-of-parameters",
        pretrain("--model.vocab-size", str(2**31 - 1), "--model.hidden-size", "768"),
        ("vocab_size=2147483647", "parameters"),
    ),
    Case(
        "E-num-steps", pretrain("--num-steps", str(10**30)), ("num_steps=", "too large")
    ),
    Case(
        "E-batch-size",
        pretrain("--batch-size", str(10**30)),
        ("batch_size=", "too large"),
    ),
    Case("num-epochs", finetune("--num-epochs", "1e39"), ("num_epochs=", "infinite")),
    Case(
        "num-epochs-0",
        finetune("--num-epochs", "0"),
        ("num_epochs=0.0", "greater than 0"),
    ),
    Case(
        "seed-of-400-digits",
        pretrain("--seed", HUGE),
        ("seed=9999", "from 0 to 4294967295"),
    ),
    Case("seed-negative", pretrain("--seed", "-1"), ("seed=-1", "from 0 to")),
    Case(
        "sequence-length-huge",
        with_text("prepare", "--sequence-length", HUGE),
        ("sequence_length=999", "too large"),
    ),
    Case(
        "validation-fraction",
        with_text("prepare", "--validation-fraction", "1.5"),
        ("validation_fraction=1.5", "less than 1"),
    ),
    Case(
        "workers-negative",
        with_text("prepare", "--workers", "-2"),
        ("workers=-2", "at least 0"),
    ),
    Case(
        "short-sequences",
        with_text("prepare", "--short-sequence-probability", "nan"),
        ("short_sequence_probability=nan", "finite"),
    ),
    Case(
        "dropout",
        pretrain("--model.hidden-dropout-prob", "1"),
        ("hidden_dropout_prob=1.0", "less than 1"),
    ),
    Case(
        "keep-checkpoints",
        pretrain("--keep-checkpoints", "0"),
        ("keep_checkpoints=0", "greater than 0"),
    ),
    Case(
        "layer-decay",
        finetune("--optimizer.layer-decay", "0"),
        ("layer_decay=0.0", "above 0"),
    ),
]

CASES = [*CONFIG_FILES, *NUMBERS]
