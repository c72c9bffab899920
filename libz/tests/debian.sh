# shellcheck shell=bash
# Sourced by the tests that take packages from Debian's archive: lists of their own for one download, from the mirror that this machine
# has its packages from.

# Writes them below a folder, and makes `apt` a command that uses them.
own_lists() { # FOLDER deb|deb-src [OPTION=VALUE]
  local folder=$1 kind=$2 release mirror
  release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  # shellcheck disable=SC2016  # It is apt that puts something there.
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $release" 'Component: main' | sed -n 1p)
  if [ -z "$mirror" ]; then
    echo "apt has no lists of $release: run apt-get update"
    return 1
  fi
  mkdir -p "$folder/lists/partial"
  printf '%s [%ssigned-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$kind" "${3:+$3 }" "$mirror" "$release" >"$folder/sources.list"
  chmod -R a+rwX "$folder/lists"
  # shellcheck disable=SC2034  # Its callers use it.
  apt=(apt-get -qq -o Acquire::Retries=5 -o "Dir::Etc::SourceList=$folder/sources.list" -o Dir::Etc::SourceParts=/nonexistent -o "Dir::State::Lists=$folder/lists")
}
