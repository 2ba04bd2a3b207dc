"""Run the tests that compare numbers as other processors would: `make machines`.

What decides about the order of float32 sums on x86 is the widest vector that XLA may
use and whether a process has one thread or more; the number of threads beyond, and the
flags of Eigen, do not. One thread is tested with the flags of `make test`, two as users
compile. A table shows each run. Then come the comparisons whose margin depends on the
processor and is below 4, of which there should be none. Tolerances that are not for
rounding, as those of printed decimals and of random shares, have the same margin
everywhere, and are only counted.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import fast_compile

SETS = ("SSE4_2", "AVX2", "AVX512")
SMALLEST = 4.0
DEFAULT = "not slow and not gpu and not reliability"
WITH_SLOW = "not gpu and not reliability"


def run(isa: str, threads: int, file: Path, arguments: list[str]) -> str:
    """Run the tests once; return the last line of pytest's output."""
    flags = [f"--xla_cpu_max_isa={isa}"]
    environment = os.environ | {"PJRT_NPROC": str(threads)}
    if threads == 1:
        flags += filter(fast_compile.is_known, fast_compile.FLAGS)
        environment["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    environment["XLA_FLAGS"] = " ".join(flags)
    marks = DEFAULT if threads == 1 else WITH_SLOW
    command = [sys.executable, "-m", "pytest", "-q", "-m", marks, "--margins", file]
    child = subprocess.run(
        [*map(str, command), *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    if child.returncode:
        print(child.stdout)
    return child.stdout.strip().splitlines()[-1]


def margins_of(file: Path) -> dict[tuple[str, str], float]:
    """The margin of each line and test."""
    lines = file.read_text().splitlines() if file.exists() else []
    rows = (line.split("\t") for line in lines)
    return {(line, test): float(margin) for margin, line, test in rows}


def count(outcome: str, line: str) -> int:
    found = re.search(rf"(\d+) {outcome}", line)
    return int(found[1]) if found else 0


def main(arguments: list[str]) -> int:
    summaries, margins = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for case in ((isa, threads) for isa in SETS for threads in (1, 2)):
            file = Path(folder) / "{}-{}.tsv".format(*case)
            summaries[case] = run(*case, file, arguments)
            margins[case] = margins_of(file)
    by_comparison: dict[tuple[str, str], list[float]] = {}
    for found in margins.values():
        for key, margin in found.items():
            by_comparison.setdefault(key, []).append(margin)
    varying = {key for key, values in by_comparison.items() if len(set(values)) > 1}
    print("instructions  threads  passed  failed  smallest margin of rounding")
    for case, line in summaries.items():
        smallest = min((m for k, m in margins[case].items() if k in varying), default=0)
        failed = count("failed", line) + count("error", line)
        print(
            f"{case[0]:12}  {case[1]:7}  {count('passed', line):6}  {failed:6}", end=""
        )
        print(f"  {smallest:.3g}")
    below = {key: min(values) for key, values in by_comparison.items()}
    below = {key: margin for key, margin in below.items() if margin < SMALLEST}
    for key in sorted(varying & below.keys(), key=below.__getitem__):
        print(f"{below[key]:5.2f}  {'  '.join(key)}")
    print(
        f"{len(below.keys() - varying)} margins below {SMALLEST:g} depend on no machine"
    )
    return int(any("failed" in line or "error" in line for line in summaries.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
