#!/usr/bin/env bash
# git on libweirgate_z.so: objects, packs, archives and binary patches, read back by a git on the system's zlib.
# usage: libz/tests/users/git.sh LIBWEIRGATE_Z.so
here=$(realpath "$(dirname "$0")")
# shellcheck source=libz/tests/common.sh
. "$here/../common.sh"
printf '%s on %s\n' "$(git --version)" "$1"
data
export HOME=$work GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=w GIT_AUTHOR_EMAIL=w@local GIT_COMMITTER_NAME=w GIT_COMMITTER_EMAIL=w@local
git config --global gc.auto 0
git config --global init.defaultBranch main

commits() {
  ours git init -q "$work/repository"
  cd "$work/repository"
  cp -r "$work/data/." .
  ours git add .
  ours git commit -qm first
  for level in 0 1 6 9; do
    text_of $((100000 * (level + 1))) >"text/level$level"
    head -c 100000 /dev/urandom >>random
    ours git -c core.compression=$level add .
    ours git -c core.compression=$level commit -qm "level $level"
  done
  had deflate deflateInit_ inflate
  git fsck --full --strict
  [ -z "$(git status --porcelain)" ]
}

packs() {
  cd "$work/repository"
  for options in '' '--aggressive --prune=now'; do
    # shellcheck disable=SC2086 # They are words.
    ours git -c pack.compression=9 gc -q $options
    git fsck --full --strict
    ours git fsck --full --strict
  done
  had deflate inflate
}

clones() {
  ours git clone -q "file://$work/repository" "$work/clone"
  git -C "$work/clone" fsck --full --strict
  git clone -q "file://$work/repository" "$work/clone of the system's"
  ours git -C "$work/clone of the system's" fsck --full --strict
  diff -r --exclude .git "$work/clone" "$work/repository"
  diff -r --exclude .git "$work/clone of the system's" "$work/repository"
  had inflate
}

archives() {
  cd "$work/repository"
  ours git archive --format=tar.gz -o "$work/archive.tar.gz" HEAD
  ours git archive --format=zip -o "$work/archive.zip" HEAD
  mkdir "$work/tar" "$work/zip"
  tar -xzf "$work/archive.tar.gz" -C "$work/tar"
  python3 -m zipfile -e "$work/archive.zip" "$work/zip"
  diff -r --exclude .git . "$work/tar"
  diff -r --exclude .git . "$work/zip"
  had deflate deflateSetHeader
}

patches() {
  cd "$work/clone"
  git reset -q --hard HEAD~2
  ours git -C "$work/repository" format-patch --binary --stdout HEAD~2 >"$work/patches"
  git am -q "$work/patches"
  diff -r --exclude .git "$work/clone" "$work/repository"
  had deflate
}

check 'commits' commits
check 'gc and fsck' packs
check 'clones' clones
check 'archives' archives
check 'binary patches' patches
finish
