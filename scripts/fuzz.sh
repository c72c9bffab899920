#!/usr/bin/env bash
# A bounded run of every fuzz target from its corpus; new inputs go to a scratch folder, crashes to the artifacts beside the corpus.
# usage: scripts/fuzz.sh SECONDS_PER_TARGET
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
# The sanitizer's coverage flags are unstable options of the stable compiler.
export RUSTC_BOOTSTRAP=1

fuzz() { # FOLDER SANITIZER
  local target new
  for target in $(cargo fuzz list --fuzz-dir "$1"); do
    echo "fuzz: $target for $seconds s"
    new=$(mktemp -d)
    cargo fuzz run --fuzz-dir "$1" --sanitizer "$2" "$target" "$new" "$1/corpus/$target" -- \
      -max_total_time="$seconds" -max_len=65536 -print_final_stats=1 2>"$new.log" || { tail -40 "$new.log"; exit 1; }
    grep -E 'number_of_executed_units|average_exec' "$new.log"
    rm -rf "$new" "$new.log"
  done
}

# Only what is under the second one has `unsafe` for a sanitizer to watch.
fuzz fuzz none
fuzz libz/fuzz address
