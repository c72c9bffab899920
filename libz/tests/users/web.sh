# shellcheck shell=bash
# Sourced by the tests of web servers: what they serve, and how that is asked for.
# shellcheck disable=SC2154 # `work`, `here`, `to` and `base` are theirs.
lengths=(100 1000 5000 20000 100000 300000 1000000)

serve_from() {
  mkdir "$work/www" "$work/got"
  local length
  for length in "${lengths[@]}"; do
    text_of "$length" >"$work/www/$length.txt"
  done
  cp "$work/data/random" "$work/www/random.txt"
  cp "$work/data/empty" "$work/www/empty.txt"
  python3 "$here/upstream.py" "$work/upstream.sock" "$work/www" &
  started+=("$!")
  await curl -sf --unix-socket "$work/upstream.sock" http://local/whole/100.txt
}

# A body by curl, who inflates it by the system's zlib, and by the system's gzip; it came compressed.
get() { # PATH FILE
  curl -sf "${to[@]}" --compressed -D "$work/head" -o "$work/body" "$base$1"
  cmp "$work/body" "$work/www/$2"
  [ ! -s "$work/www/$2" ] || grep -qi '^content-encoding: gzip' "$work/head"
  curl -sf "${to[@]}" -H 'Accept-Encoding: gzip' -o "$work/body" "$base$1"
  [ ! -s "$work/www/$2" ] || gzip -dc "$work/body" | cmp - "$work/www/$2"
}

get_all() { # FOLDER
  local length
  for length in "${lengths[@]}"; do
    get "$1$length.txt" "$length.txt"
  done
  get "$1random.txt" random.txt
  get "$1empty.txt" empty.txt
}

# All of them side by side, a few times.
get_at_once() { # FOLDER
  local urls=() length round
  for round in 1 2 3 4 5 6 7 8; do
    for length in "${lengths[@]}"; do
      urls+=(-o "$work/got/$round-$length" "$base$1$length.txt")
    done
  done
  curl -sf "${to[@]}" --compressed --parallel --parallel-max 20 "${urls[@]}"
  for round in 1 2 3 4 5 6 7 8; do
    for length in "${lengths[@]}"; do
      cmp "$work/got/$round-$length" "$work/www/$length.txt"
    done
  done
}

# Of what a slow upstream sends something arrives before it has sent the rest, and it is whole in the end.
get_slow() { # FOLDER
  local client length
  for length in 1000 100000 1000000; do
    curl -sfN "${to[@]}" -H "X-Go: $work/go" --compressed -o "$work/body" "$base$1$length.txt" &
    client=$!
    await test -s "$work/body"
    [ "$(stat -c %s "$work/body")" -lt "$length" ]
    touch "$work/go"
    wait $client
    cmp "$work/body" "$work/www/$length.txt"
    rm "$work/body" "$work/go"
  done
}

# Clients that go in the middle of a response.
get_part() { # FOLDER
  for _ in 1 2 3 4 5; do
    timeout 0.2 curl -sfN "${to[@]}" -H 'Accept-Encoding: gzip' "$base$1" >/dev/null || true
    curl -s "${to[@]}" -H 'Accept-Encoding: gzip' "$base/1000000.txt" | head -c 1000 >/dev/null || true
  done
}
