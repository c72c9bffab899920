#!/usr/bin/env bash
# Builds libweirgate_z.so, a libz.so.1 with zlib's symbols and their versions and no others.
# usage: scripts/libz.sh OUT [CARGO OPTION ...]
# For a machine other than this one, CARGO_BUILD_TARGET names it, and CC, LD, NM and OBJCOPY are its tools: aarch64-unknown-linux-gnu,
# aarch64-linux-gnu-gcc (Debian's gcc-aarch64-linux-gnu), aarch64-linux-gnu-ld and so on.
set -euo pipefail
cd "$(dirname "$0")/../libz"
out=$1; shift
target=${CARGO_TARGET_DIR:-$PWD/target}/libz
cargo build --quiet --locked --release --target-dir "$target" "$@"
archive=$target/${CARGO_BUILD_TARGET:+$CARGO_BUILD_TARGET/}release/libweirgate_z.a
read -ra cc <<<"${CC:-cc}"
objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT
# rustc's own version script has no names for versions, and ld takes no second one beside it: so it is linked here. One object, whose
# other symbols are made local, since those of zlib that have no version cannot be told from them in a version script.
mapfile -t undefined < <(sed 's/^/-u/' symbols.txt)
"${LD:-ld}" -r --gc-sections "${undefined[@]}" -o "$objects/all.o" --whole-archive "$archive"
"${OBJCOPY:-objcopy}" --strip-debug --keep-global-symbols=symbols.txt "$objects/all.o"
"${cc[@]}" -shared -o "$out.new" "$objects/all.o" -Wl,-soname,libz.so.1 -Wl,--version-script=zlib.map -Wl,-z,relro,-z,now \
  -Wl,-z,defs -Wl,--gc-sections -lgcc_s -lc -lm -ldl -lpthread
mv "$out.new" "$out"
