"""Print the flags with which XLA compiles small programs in half the time.

The other process of the tests has the other core: a program in one piece costs a tenth
less than in pieces side by side.

`make test` puts them into XLA_FLAGS. XLA aborts on a flag that it does not know, so a
flag that this version lacks is left out.
"""

import os
import subprocess
import sys

FLAGS = (
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)
USE_XLA = "import jax; jax.devices()"


def is_known(flag: str) -> bool:
    """Whether XLA starts with the flag."""
    environment = os.environ | {"XLA_FLAGS": flag, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", USE_XLA]
    child = subprocess.run(command, env=environment, capture_output=True)
    return child.returncode == 0


if __name__ == "__main__":
    print(" ".join(filter(is_known, FLAGS)))
