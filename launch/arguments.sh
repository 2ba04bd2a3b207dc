# shellcheck shell=bash
# How the launchers read their arguments and variables, and print their help. Read by all
# of them, after they have set their variables; it needs nothing but bash and awk.

dry_run=0 verb='' launcher=''
# Where run() prints: the script's own output, also from within $().
exec 3>&1

# The header of the first script with its options, and the variables of all, with defaults
# and comments.
show_help() {
  awk '
    FNR == 1 { body = 0; next }
    !body && /^#SBATCH / { sbatch[++lines] = $2; next }
    !body && /^#$/ && !header { next }
    !body && FNR == NR && /^#/ {
      header = 1
      if (/--dry-run/) dry_run = 1
      sub(/^# ?/, "")
      print
    }
    /^set -euo pipefail/ {
      if (body++ || FNR != NR) next
      print "\nOptions:"
      if (dry_run) print "  --dry-run  print every command, and run none"
      print "  --help     print this"
      if (lines) print "\nOptions of sbatch; edit them in the file:"
      for (i = 1; i <= lines; i++) print "  " sbatch[i]
      print "\nVariables, with their defaults:"
      next
    }
    body && /^(export )?[A-Z][A-Z_0-9]*=\$\{/ {
      sub(/^export /, "")
      comment = ""
      if (match($0, / +# /)) {
        comment = substr($0, RSTART + RLENGTH)
        $0 = substr($0, 1, RSTART - 1)
      }
      name = $0; sub(/=.*/, "", name)
      if (seen[name]++) next
      value = $0; sub(/^[^-]*-/, "", value); sub(/\}$/, "", value)
      sub(/^\$root\//, "", value)
      printf "  %s=%s\n", name, value
      if (comment != "") printf "      %s\n", comment
    }' "$@"
}

wrong_usage() {
  echo "usage: launch/$launcher ${1:+${1// /|} }[--dry-run|--help]" >&2
  exit 2
}

# Set launcher, dry_run and verb. $1: the launcher, and another whose variables it passes
# on; $2: its verbs, if any; then its arguments.
read_arguments() {
  local folder scripts verbs=$2 argument
  folder=$(dirname "${BASH_SOURCE[0]}")
  read -r -a scripts <<<"$1"
  launcher=${scripts[0]}
  shift 2
  for argument in "$@"; do
    case $argument in
      --help | -h) show_help "${scripts[@]/#/$folder/}" && exit 0 ;;
      --dry-run) dry_run=1 ;;
      *)
        if [ -n "$verb" ] || [[ " $verbs " != *" $argument "* ]]; then
          wrong_usage "$verbs"
        fi
        verb=$argument
        ;;
    esac
  done
}

# End with 2 unless the NAME of each NAME=PLACEHOLDER is set; in a dry run the placeholder
# stands for what is not.
require_variables() {
  local pair name
  for pair in "$@"; do
    name=${pair%%=*}
    if [ -z "${!name:-}" ]; then
      if ((!dry_run)); then
        echo "$launcher: $name is not set." >&2
        exit 2
      fi
      printf -v "$name" %s "${pair#*=}"
      echo "# $name is not set; ${pair#*=} stands for it." >&2
    fi
    export "${name?}"
  done
}
# What every run needs.
require_run_variables() {
  require_variables DATA_128=gs://BUCKET/data128 DATA_512=gs://BUCKET/data512 \
    WORKDIR=gs://BUCKET/WORKDIR
}

# End with 2 unless the run outlives its hosts.
require_bucket() {
  if [[ $WORKDIR != gs://* ]]; then
    echo "$launcher: WORKDIR=$WORKDIR is not on gs://, and would be lost with its hosts." >&2
    exit 2
  fi
}

# End with 2 unless each of the variables after $1 is empty or a whole number from $1 on.
require_numbers() {
  local smallest=$1 name
  shift
  for name in "$@"; do
    if ! [[ ${!name:-$smallest} =~ ^(0|[1-9][0-9]*)$ ]] ||
      ((${!name:-$smallest} < smallest)); then
      echo "$launcher: $name=${!name} is not a number from $smallest on." >&2
      exit 2
    fi
  done
}

# Call a command, or print it in a dry run.
run() {
  if ((dry_run)); then
    printf '%q ' "$@" >&3
    echo >&3
  else
    "$@"
  fi
}
