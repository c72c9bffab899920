#!/usr/bin/env bash
# The benchmarks: what one sample, one record, one round and one poll cost. The whole workspace is selected each time, so
# that no library is built twice.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo bench --locked
cargo run --release --locked --example encode
cargo run --release --locked --example poll_cost -- 100000 10
