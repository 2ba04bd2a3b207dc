# shellcheck shell=bash
# How launch/tpu_pod.sh, which reads this file and sets its variables, talks to Google
# Cloud.
# shellcheck disable=SC2153,SC2154

say() { echo "tpu_pod.sh: $*" >&2; }

# The image for an accelerator type, by Google's table of TPU software versions.
runtime_version() {
  case $1 in
    v6e-*) echo v2-alpha-tpuv6e ;;
    v5p-*) echo v2-alpha-tpuv5 ;;
    v5litepod-*) echo v2-alpha-tpuv5-lite ;;
    v2-* | v3-* | v4-*) echo tpu-ubuntu2204-base ;;
    *)
      say "ACCELERATOR_TYPE=$1: v6e-*, v5p-*, v5litepod-* or v4-*; for another, set" \
        "RUNTIME_VERSION too. Ironwood (TPU7x) needs launch/gke.sh."
      return 2
      ;;
  esac
}

tpus() { run gcloud compute tpus "$@" --zone "$ZONE" ${PROJECT:+--project "$PROJECT"}; }

# A worker that is preempted may fall silent without closing the connection: ask it. And
# gcloud tries ten times, each of which would wait two minutes for a machine that is gone.
ssh_to() {
  tpus tpu-vm ssh "$1" "--worker=$2" --ssh-flag=-oServerAliveInterval=15 \
    --ssh-flag=-oConnectTimeout=15 "--command=$3"
}
copy_to() { tpus tpu-vm scp "$2" "$1:bert_jax.tar.gz" --worker=all; }

# Call `$1 NODE …` for every node; for several at once. Fails where one does. Not `gcloud
# compute tpus queued-resources ssh --node=all`: it leaves out a node that does not answer,
# and succeeds.
on_nodes() {
  local function=$1 node code=0 pid pids=()
  shift
  for node in "${nodes[@]}"; do
    if ((dry_run || ${#nodes[@]} == 1)); then
      "$function" "$node" "$@" || code=$?
    else
      "$function" "$node" "$@" &
      pids+=("$!")
    fi
  done
  for pid in ${pids[@]+"${pids[@]}"}; do wait "$pid" || code=$?; done
  return "$code"
}

# Between two questions. `all` pretrains in a subshell, where $$ is the launcher: killed
# alone, it leaves nobody to delete the pods that the subshell would go on to create.
pause() {
  sleep "$POLL_SECONDS"
  kill -0 $$ 2>/dev/null || exit 75
}

# The workers' own shell parses the command once more, hence %q.
on_workers() {
  local worker=$1 command=env name
  shift
  for name in DATA_128 DATA_512 WORKDIR CONFIG_128 CONFIG_512 TRAIN_OPTIONS LOG_LINES \
    INITIALIZATION_TIMEOUT HANG_TIMEOUT_MINUTES PYTHON_VERSION STOP_SECONDS; do
    if [ -n "${!name:-}" ]; then command+=" $(printf '%q' "$name=${!name}")"; fi
  done
  on_nodes ssh_to "$worker" \
    "$command bash bert_jax/launch/tpu_worker.sh$(printf ' %q' "$@")"
}

# A line for each worker; fails where one does not answer. $1: what a dry run pretends.
statuses() {
  on_workers all status | { grep '^worker ' || ((dry_run)); } || return
  if ((dry_run)); then echo "worker 0 $1"; fi
}

# The state of the queued resource: NONE where there is none, UNKNOWN where we could not
# ask. The two are worlds apart: the first is created, about the second nothing is done.
state() {
  if tpus queued-resources describe "$NAME" '--format=value(state.state)' \
    2>"$scratch/errors"; then
    if ((dry_run)); then echo "$pretended"; fi
  elif grep -q NOT_FOUND "$scratch/errors"; then
    echo NONE
  else
    cat "$scratch/errors" >&2
    echo UNKNOWN
  fi
}

create() {
  local options=(--node-id "$NAME")
  if ((SLICES > 1)); then options=(--node-count "$SLICES" --node-prefix "$NAME"); fi
  if ((SPOT)); then options+=(--spot); fi
  if [ -n "$VALID_UNTIL_DURATION" ]; then
    options+=(--valid-until-duration "$VALID_UNTIL_DURATION")
  fi
  say "asking for $NAME, $SLICES x $ACCELERATOR_TYPE in $ZONE"
  tpus queued-resources create "$NAME" --accelerator-type "$ACCELERATOR_TYPE" \
    --runtime-version "$RUNTIME_VERSION" "${options[@]}" || return
  pretended=ACTIVE
}

# --force takes the node along. Ends the script where it does not succeed: a pod that
# nobody watches costs money.
delete() {
  local tries=0
  while [ "$(state)" != NONE ]; do
    if ((tries >= MAX_SSH_FAILURES)); then
      say "$NAME could not be deleted, and may still COST MONEY; delete it by hand."
      exit 1
    fi
    if ((tries)); then pause; fi
    tries=$((tries + 1))
    tpus queued-resources delete "$NAME" --force --quiet || true
    pretended=NONE
  done
}
