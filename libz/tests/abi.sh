#!/usr/bin/env bash
# The interface of libweirgate_z.so beside that of Debian's libz.so.1: symbols, versions, layouts, and what each call answers.
# usage: libz/tests/abi.sh LIBWEIRGATE_Z.so
here=$(realpath "$(dirname "$0")")
# shellcheck source=libz/tests/common.sh
. "$here/common.sh"
system=${ZLIB:-$(ldconfig -p | awk '/libz\.so\.1 / && /x86-64|AArch64/ { print $NF }')}
printf 'the interface of %s, beside %s (%s)\n' "$1" "$system" "$(dpkg-query -W -f '${Version}' zlib1g)"

symbols() { nm -D --defined-only "$1" | awk '{ print $2, $3 }' | LC_ALL=C sort; }

exports() {
  symbols "$system" >"$work/system"
  symbols "$lib" >"$work/ours"
  diff "$work/system" "$work/ours"
  [ "$(wc -l <"$work/ours")" -gt 100 ]
  readelf -d "$lib" | grep -F 'SONAME' | grep -F '[libz.so.1]'
}

# What is undefined is the C library's, libm's or libgcc_s's, by its version, or weak and of the toolchain's.
imports() {
  nm -D --undefined-only "$lib" | awk '{ print $1, $2 }' | LC_ALL=C sort >"$work/undefined"
  grep -vE '^[Uw] [A-Za-z0-9_]+@(GLIBC|GCC)_[0-9.]+$|^w (_ITM_|__gmon_start__)' "$work/undefined" && return 1
  readelf -d "$lib" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libc|libm|libgcc_s|libdl|libpthread|ld-linux.*)\.so\.[0-9]$' && return 1
  return 0
}

# A program's lines by both libraries, which are equal and many.
table() { # NAME LINES_MIN ARGUMENT ...
  local name=$1 min=$2; shift 2
  cc -O1 -Wall -Wextra -Werror -o "$work/$name" "$here/$name.c" -lz
  env -u LD_PRELOAD "${run[@]}" "$work/$name" "$@" >"$work/$name.system"
  ours "$work/$name" "$@" >"$work/$name.ours"
  if ! diff "$work/$name.system" "$work/$name.ours" >"$work/diff"; then
    printf '%d lines differ, the first of them (< the system, > ours):\n' "$(grep -c '^<' "$work/diff")"
    head -n 20 "$work/diff"
    return 1
  fi
  [ "$(wc -l <"$work/$name.ours")" -ge "$min" ]
  case $name in
  deflate) had deflate deflateInit2_ deflateParams compress2 crc32 ;;
  inflate) had inflate inflateBack inflateInit2_ ;;
  gz) had gzopen gzread gzwrite ;;
  esac
}

# The same lines by ours in another way: by the system's name, in a folder where the dynamic linker looks first. It takes the library's
# versions for the program's, and says where it finds none.
linked() { # NAME SYMBOL ARGUMENT ...
  local name=$1 symbol=$2 in=(); shift 2
  mkdir -p "$work/linked"
  ln -sf "$lib" "$work/linked/libz.so.1"
  # QEMU has another environment for its program.
  if ((${#run[@]})); then in=(-E "LD_LIBRARY_PATH=$work/linked"); fi
  env -u LD_PRELOAD "LD_LIBRARY_PATH=$work/linked" LD_DEBUG=bindings "LD_DEBUG_OUTPUT=$work/linked/of" \
    "${run[@]}" "${in[@]}" "$work/$name" "$@" >"$work/$name.linked" 2>"$work/$name.stderr"
  cat "$work/$name.stderr"
  if grep 'no version information' "$work/$name.stderr"; then return 1; fi
  cmp "$work/$name.system" "$work/$name.linked"
  grep -qrF "to $work/linked/libz.so.1 [0]: normal symbol \`$symbol'" "$work/linked"
}

check 'symbols and their versions' exports
check 'no undefined symbols but of libc, libm and libgcc_s' imports
check 'layouts, deflate, whole bodies and checksums: 50,000 lines' table deflate 50000
check 'inflate: 2,000 lines' table inflate 2000
check 'gz files: 800 lines' table gz 800 "$work"
check 'as libz.so.1: deflate' linked deflate deflate
check 'as libz.so.1: inflate' linked inflate inflate
check 'as libz.so.1: gz files' linked gz gzopen "$work"
finish
