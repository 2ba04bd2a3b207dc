"""Stands for srun, which runs its command once, sbatch, scontrol, squeue and rsync."""

import os
import subprocess
import sys

from world import log, read

program, sys.argv[1:] = sys.argv[1], sys.argv[2:]
log(program)
if program == "squeue":
    print(read("job_state", "RUNNING"))
if program == "srun":
    command = sys.argv[1:]
    while command[0].startswith("--"):
        command = command[1:]
    environment = os.environ | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    sys.exit(subprocess.run(command, env=environment).returncode)
