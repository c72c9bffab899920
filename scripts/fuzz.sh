#!/usr/bin/env bash
# A bounded run of every fuzz target from its corpus, as many at once as there are processors; new inputs go to a scratch folder, crashes to
# the artifacts beside the corpus.
# usage: scripts/fuzz.sh SECONDS_PER_TARGET
set -euo pipefail
cd "$(dirname "$0")/.."
export seconds=$1
# The sanitizer's coverage flags are unstable options of the stable compiler.
export RUSTC_BOOTSTRAP=1

one() { # FOLDER SANITIZER TARGET
  local new; new=$(mktemp -d)
  cargo fuzz run --fuzz-dir "$1" --sanitizer "$2" "$3" "$new" "$1/corpus/$3" -- \
    -max_total_time="$seconds" -max_len=65536 -print_final_stats=1 2>"$new.log" || { echo "fuzz: $3"; tail -40 "$new.log"; exit 1; }
  echo "fuzz: $3 for $seconds s: $(grep -oE '(number_of_executed_units|average_exec_per_sec): +[0-9]+' "$new.log" | tr -s ' ' | paste -sd ' ')"
  rm -rf "$new" "$new.log"
}
export -f one

fuzz() { # FOLDER SANITIZER
  cargo fuzz build --fuzz-dir "$1" --sanitizer "$2"
  cargo fuzz list --fuzz-dir "$1" | xargs -P "$(nproc)" -I {} bash -euc 'one "$@"' _ "$1" "$2" {}
}

# Only what is under the second one has `unsafe` for a sanitizer to watch.
fuzz fuzz none
fuzz libz/fuzz address
