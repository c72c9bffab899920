#!/usr/bin/env bash
# A bounded run of every fuzz target from its corpus; new inputs go to a scratch folder, crashes to fuzz/artifacts.
# usage: scripts/fuzz.sh SECONDS_PER_TARGET
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
# The sanitizer's coverage flags are unstable options of the stable compiler.
export RUSTC_BOOTSTRAP=1
for target in $(cargo fuzz list); do
  echo "fuzz: $target for $seconds s"
  new=$(mktemp -d)
  # The others have no `unsafe` for it to watch.
  sanitizer=none
  [ "$target" != deflate ] || sanitizer=address
  cargo fuzz run --sanitizer $sanitizer "$target" "$new" "fuzz/corpus/$target" -- \
    -max_total_time="$seconds" -max_len=65536 -print_final_stats=1 2>"$new.log" || { tail -40 "$new.log"; exit 1; }
  grep -E 'number_of_executed_units|average_exec' "$new.log"
  rm -rf "$new" "$new.log"
done
