# shellcheck shell=bash
# How the launchers count tries. Read by local.sh, tpu_pod.sh, slurm.sbatch and sky.yaml, and
# by the first container of the JobSet; it needs nothing but bash, and gcloud or gsutil for
# gs://.
#
# A trainer's exit code tells whether another try can help: 2 is what is wrong before the
# first step, and stays wrong; 1 (the run failed), 134 (it lost a peer), 137 (killed), other
# signals and 143 (stopped, with a whole checkpoint) are tried again. Every new whole
# checkpoint begins the count anew, so that a run of weeks may be interrupted any number of
# times, and one that gets nowhere ends after MAX_RESTARTS tries in a row.

tries=0 # in a row without a new whole checkpoint
best='' # the newest steps of the phases 128 and 512 when tries began; '': not yet looked at

# Whether the exit code $1 is one after which another try can help.
can_help() {
  case $1 in
    1) return 0 ;;
    130) return 1 ;; # somebody pressed Ctrl-C
    *) (($1 > 128)) ;;
  esac
}

# The manifests, written last, of the checkpoints in the directory $1; none where it cannot
# be asked: then no try counts as progress.
manifests() {
  case $1 in
    gs://*)
      if command -v gcloud >/dev/null; then
        gcloud storage ls "$1/*/manifest.json" 2>/dev/null || true
      elif command -v gsutil >/dev/null; then
        gsutil ls "$1/*/manifest.json" 2>/dev/null || true
      fi
      ;;
    *) printf '%s\n' "$1"/*/manifest.json ;;
  esac
}

# The newest whole step of each phase of the run in $1, "STEP STEP"; 0: none.
newest_steps() {
  # The trainer leaves a / at the end of the path out, too.
  local run=${1%"${1##*[!/]}"} phase path step newest result=()
  for phase in 128 512; do
    newest=0
    while read -r path; do
      step=${path%/manifest.json} step=${step##*/}
      if [[ $step =~ ^[0-9]+$ ]] && ((10#$step > newest)); then newest=$((10#$step)); fi
    done < <(manifests "$run/$phase/checkpoints")
    result+=("$newest")
  done
  echo "${result[*]}"
}

# Count a try, from 1 again where the run in $1 has a new whole checkpoint.
count_try() {
  local now old new
  now=$(newest_steps "$1")
  if [ -n "$best" ]; then
    read -r -a old <<<"$best"
    read -r -a new <<<"$now"
    if ((new[0] > old[0] || new[1] > old[1])); then
      tries=0 best=$now
    fi
  else
    best=$now
  fi
  tries=$((tries + 1))
}

# Count a start of the run in $1, on gs://, in a file there: for launchers that another
# program starts again. Returns 3 after MAX_RESTARTS tries without a new whole checkpoint.
count_start() {
  local memory=$1/launch_tries line
  if line=$(gcloud storage cat "$memory" 2>/dev/null); then
    read -r tries best <<<"$line"
    count_try "$1"
  else
    best=$(newest_steps "$1")
  fi
  if ((tries > MAX_RESTARTS)); then
    gcloud storage rm "$memory"
    echo "no new checkpoint in MAX_RESTARTS=$MAX_RESTARTS tries." >&2
    return 3
  fi
  echo "$tries $best" | gcloud storage cp - "$memory"
}
