#!/usr/bin/env bash
# libweirgate_z.so for aarch64, built on another machine: its interface and zlib's own programs, emulated by QEMU, beside the libz of
# Debian's arm64, which is fetched into a folder of its own. Installs nothing; where something that it takes is missing, it is skipped.
# usage: libz/tests/aarch64.sh
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=libz/tests/debian.sh
. ./debian.sh
target=aarch64-unknown-linux-gnu
tools=aarch64-linux-gnu
missing=()
for needed in $tools-gcc:gcc-aarch64-linux-gnu qemu-aarch64-static:qemu-user-static; do
  command -v "${needed%:*}" >/dev/null || missing+=("Debian's ${needed#*:}")
done
[ -e /usr/$tools/include/stdio.h ] || missing+=("Debian's libc6-dev-arm64-cross")
[ -d "$(rustc --print target-libdir --target $target)" ] || missing+=("rustup target add $target")
if ((${#missing[@]})); then
  printf 'SKIPPED: libz/tests/aarch64.sh needs this:\n'
  printf '  %s\n' "${missing[@]}"
  printf '0 passed, 0 failed, 1 skipped\n'
  exit
fi

work=$(mktemp -d /tmp/weirgate-aarch64.XXXXXX)
trap 'rm -rf "$work"' EXIT

own_lists "$work" deb arch=arm64
mkdir -p "$work/cache" "$work/debs" "$work/zlib"
chmod -R a+rwX "$work"
apt+=(-o "Dir::Cache=$work/cache" -o "APT::Architectures=$(dpkg --print-architecture),arm64")
"${apt[@]}" update
(cd "$work/debs" && "${apt[@]}" download zlib1g:arm64 zlib1g-dev:arm64)
for package in "$work"/debs/*.deb; do
  dpkg-deb -x "$package" "$work/zlib"
done
lib=$work/zlib/lib/$tools
ln -s libz.so.1 "$lib/libz.so"

CARGO_BUILD_TARGET=$target CC=$tools-gcc LD=$tools-ld NM=$tools-nm OBJCOPY=$tools-objcopy ../../scripts/libz.sh "$work/libweirgate_z.so"
passed=0
failed=0
for script in abi.sh zlib.sh; do
  said=$(CC="$tools-gcc -I$work/zlib/usr/include -L$lib" RUN="qemu-aarch64-static -L /usr/$tools -E LD_LIBRARY_PATH=$lib" \
    ZLIB=$lib/libz.so.1 ./$script "$work/libweirgate_z.so" | tee >(cat >&2) | tail -n 1) || true
  if [[ $said =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    passed=$((passed + BASH_REMATCH[1]))
    failed=$((failed + BASH_REMATCH[2]))
  else
    printf '%s did not come to its end\n' $script
    failed=$((failed + 1))
  fi
done
printf '%d passed, %d failed\n' $passed $failed
[ $failed = 0 ]
