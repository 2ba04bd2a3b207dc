"""The command line, with a folder as gs://, where writes fail.

    python bucket_run.py FOLDER FAILURES ARGUMENTS…

The first FAILURES writes after the first whole checkpoint fail, as a connection does.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fake_bucket import Bucket, install

from bert_jax.cli.main import main

RESET = ConnectionResetError(104, "Connection reset by peer")


class Failures:
    """Raises before the first writes, once a manifest was written."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.first = False

    def __call__(self, *addresses: object) -> None:
        if self.first and self.left:
            self.left -= 1
            print("a write fails", flush=True)
            raise RESET
        self.first = self.first or any("manifest.json" in str(a) for a in addresses)


if __name__ == "__main__":
    install(Bucket(Path(sys.argv[1]), Failures(int(sys.argv[2]))), setattr)
    sys.exit(main(sys.argv[3:]))
