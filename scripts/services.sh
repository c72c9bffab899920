#!/usr/bin/env bash
# Real servers on loopback, for tests and for trying what talks to them: Apache Kafka and ZooKeeper, ClickHouse of 25.8 (scripts/setup.sh
# fetches them) and Debian's of 18.16, whose configuration FOLDER/current/config.d and FOLDER/clickhouse/config.d may add to. All that they
# write is below FOLDER; their ports are free ones, or KAFKA_PORT, KAFKA_TLS_PORT, CLICKHOUSE_PORT and CLICKHOUSE_CURRENT_PORT.
# `start` returns when they answer, prints where and writes it to FOLDER/env:
#   KAFKA       plaintext
#   KAFKA_TLS   TLS and SCRAM-SHA-512: user weirgate, password in FOLDER/password, its CA in FOLDER/ca.pem
#   CLICKHOUSE  HTTP, user default without a password; so is
#   CLICKHOUSE_CURRENT
#   ZOOKEEPER   plaintext
# A later `start` finds the same data and ports. `kill` is SIGKILL. Exit status: 77 where a server's package is missing (the others
# run), 1 from `status` where a server does not run.
# usage: scripts/services.sh start|stop|kill|status FOLDER [kafka] [clickhouse] [current] [zookeeper]
set -euo pipefail
here=$(dirname "$(realpath "$0")")
say() { printf 'services: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
action=${1:-} folder=${2:-}
[[ $action =~ ^(start|stop|kill|status)$ && -n $folder ]] || fail "say \`start\`, \`stop\`, \`kill\` or \`status\`, and a folder"
shift 2
(($#)) || set -- kafka clickhouse current
for name in "$@"; do
  [[ $name =~ ^(kafka|clickhouse|current|zookeeper)$ ]] || fail "no server is called $name"
done
folder=$(realpath -m "$folder")
jars=$HOME/.cache/weirgate/tools/kafka/lib
zookeeper_jars=$HOME/.cache/weirgate/tools/zookeeper/lib
library=$HOME/.cache/weirgate/tools/chdb/kafka/chdb/_chdb.abi3.so
PATH=$PATH:/usr/sbin
# What each server is told on its command line and no other process is.
declare -A argument=([kafka]="$folder/kafka/server.properties" [clickhouse]="--config-file=$folder/clickhouse/config.xml"
  [current]="--config-file=$folder/current/config.xml" [zookeeper]="$folder/zookeeper/zoo.cfg")

# The pid of the server, if it runs: a number that another process has got since does not count.
pid_of() { # NAME
  local pid
  pid=$(cat "$folder/$1/pid" 2>/dev/null) && grep -zqxF -- "${argument[$1]}" "/proc/$pid/cmdline" 2>/dev/null && echo "$pid"
}

taken() { # PORT
  (: <>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

# Sets and keeps `port`: what is wanted, else what the last start had, else a free one below those that the kernel gives to
# outgoing connections.
find_ports() { # NAME WANTED_OR_EMPTY ...
  local name=$1 n=0 candidate wanted
  shift
  port=()
  [ ! -s "$folder/$name/ports" ] || read -ra port < "$folder/$name/ports"
  for candidate in $(shuf -i 20000-32000); do
    ((${#port[@]} < $#)) || break
    taken "$candidate" || port+=("$candidate")
  done
  for wanted in "$@"; do
    port[n]=${wanted:-${port[n]}}
    ! taken "${port[n]}" || fail "$name's port ${port[n]} is taken"
    n=$((n + 1))
  done
  echo "${port[*]}" > "$folder/$name/ports"
}

missing_kafka() {
  local tool
  for tool in java openssl; do
    command -v $tool >/dev/null || { echo "no $tool: run \`make setup\`"; return; }
  done
  [ ! -d "$jars" ] && echo "no $jars: run \`make setup\`"
}

# A CA for this server alone. What is valid for another day is left as it is.
certificates() { # DIRECTORY
  openssl x509 -noout -checkend 86400 -in "$1/server.pem" >/dev/null 2>&1 && return
  sh "$here/services/certificates.sh" "$1" 2>>"$1/output" &&
    cat "$1/server.key" "$1/server.crt" > "$1/server.pem" &&
    mv "$1/ca.pem" "$folder/ca.pem" &&
    rm "$1/server.key" "$1/server.crt"
}

start_kafka() {
  local dir=$folder/kafka port
  local java=(java -Xmx512m -Dlog4j2.level=INFO -cp "$jars/*")
  find_ports kafka "${KAFKA_PORT:-}" "${KAFKA_TLS_PORT:-}" ""
  printf 'KAFKA=127.0.0.1:%s\nKAFKA_TLS=127.0.0.1:%s\n' "${port[@]:0:2}" > "$dir/env"
  (umask 077 && [ -s "$folder/password" ] || openssl rand -hex 16 > "$folder/password")
  (umask 077 && certificates "$dir") || fail "cannot make certificates: $(tail -n 3 "$dir/output")"
  cat > "$dir/server.properties" <<EOF
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:${port[2]}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:${port[0]},SASL_SSL://127.0.0.1:${port[1]},CONTROLLER://127.0.0.1:${port[2]}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
ssl.keystore.type=PEM
ssl.keystore.location=$dir/server.pem
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
log.dirs=$dir/data
# One server is all there is.
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
# After a SIGKILL the new server waits for the old one's session to end: at the default, 9 s.
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
EOF
  if [ ! -f "$dir/data/meta.properties" ]; then
    rm -rf "$dir/data"
    "${java[@]}" kafka.tools.StorageTool format --cluster-id weirgateAAAAAAAAAAAAAA --config "$dir/server.properties" \
      --add-scram "SCRAM-SHA-512=[name=weirgate,password=$(cat "$folder/password")]" >>"$dir/output" 2>&1 ||
      { rm -rf "$dir/data"; fail "cannot make Kafka's storage: $(tail -n 3 "$dir/output")"; }
  fi
  run kafka "${java[@]}" kafka.Kafka "${argument[kafka]}"
}

# An ApiVersions request of version 0, number 7; its answer repeats the number and says that there was no error.
answers_kafka() {
  local port
  read -r port _ < "$folder/kafka/ports"
  (exec 3<>"/dev/tcp/127.0.0.1/$port" || exit
    printf '\0\0\0\12\0\22\0\0\0\0\0\7\377\377' >&3
    [ "$(timeout 5 head -c 10 <&3 | tail -c 6 | od -An -tx1)" = ' 00 00 00 07 00 00' ]) 2>/dev/null
}

missing_clickhouse() {
  ! command -v clickhouse-server >/dev/null && echo "no clickhouse-server: run \`make setup\`"
}

configure_clickhouse() { # DIRECTORY PORT ROOT
  cat > "$1/config.xml" <<EOF
<$3>
  <logger><level>information</level><log>$1/log</log><errorlog>$1/log.error</errorlog></logger>
  <listen_host>127.0.0.1</listen_host>
  <http_port>$2</http_port>
  <path>$1/data/</path>
  <tmp_path>$1/data/tmp/</tmp_path>
  <user_files_path>$1/data/user_files/</user_files_path>
  <format_schema_path>$1/data/format_schemas/</format_schema_path>
  <mark_cache_size>67108864</mark_cache_size>
  <default_profile>default</default_profile>
  <default_database>default</default_database>
  <profiles><default/></profiles>
  <quotas><default/></quotas>
  <users>
    <default>
      <password></password>
      <networks><ip>127.0.0.1</ip></networks>
      <profile>default</profile>
      <quota>default</quota>
    </default>
  </users>
</$3>
EOF
}

start_clickhouse() {
  local dir=$folder/clickhouse port
  find_ports clickhouse "${CLICKHOUSE_PORT:-}"
  echo "CLICKHOUSE=http://127.0.0.1:$port" > "$dir/env"
  configure_clickhouse "$dir" "$port" yandex
  run clickhouse clickhouse-server "${argument[clickhouse]}"
}

answers_clickhouse() { # [NAME]
  [ "$(curl -s --noproxy '*' --max-time 5 "$(sed 's/.*=//' "$folder/${1:-clickhouse}/env")/?query=SELECT%201")" = 1 ]
}

missing_current() {
  [ ! -f "$library" ] && echo "no $library: run \`make setup\`"
}

start_current() {
  local dir=$folder/current port
  find_ports current "${CLICKHOUSE_CURRENT_PORT:-}"
  echo "CLICKHOUSE_CURRENT=http://127.0.0.1:$port" > "$dir/env"
  configure_clickhouse "$dir" "$port" clickhouse
  # Without it what runs is a child of what is started here, and signals reach the wrong one.
  run current env CLICKHOUSE_WATCHDOG_ENABLE=0 python3 "$here/services/current.py" "$library" "${argument[current]}"
}

answers_current() { answers_clickhouse current; }

missing_zookeeper() {
  command -v java >/dev/null || { echo "no java: run \`make setup\`"; return; }
  [ ! -d "$zookeeper_jars" ] && echo "no $zookeeper_jars: run \`make setup\`"
}

start_zookeeper() {
  local dir=$folder/zookeeper port
  find_ports zookeeper ""
  echo "ZOOKEEPER=127.0.0.1:$port" > "$dir/env"
  cat > "$dir/zoo.cfg" <<EOF
dataDir=$dir/data
clientPort=$port
clientPortAddress=127.0.0.1
admin.enableServer=false
4lw.commands.whitelist=ruok
EOF
  run zookeeper java -Xmx256m -cp "$zookeeper_jars/*" org.apache.zookeeper.server.quorum.QuorumPeerMain "${argument[zookeeper]}"
}

answers_zookeeper() {
  local port
  read -r port _ < "$folder/zookeeper/ports"
  (exec 3<>"/dev/tcp/127.0.0.1/$port" || exit
    printf ruok >&3
    [ "$(timeout 5 head -c 4 <&3)" = imok ]) 2>/dev/null
}

# In the background, without this script's lock, in a session of its own, so that what ends this terminal or test leaves it alone.
run() { # NAME COMMAND ...
  local name=$1; shift
  setsid "$@" </dev/null >>"$folder/$name/output" 2>&1 9>&- &
  echo $! > "$folder/$name/pid"
}

wait_for() { # NAME
  local pid end=$((SECONDS + 120))
  pid=$(cat "$folder/$1/pid")
  until "answers_$1"; do
    kill -0 "$pid" 2>/dev/null || fail "$1 ended, see $folder/$1: $(tail -n 3 "$folder/$1/output")"
    ((SECONDS < end)) || fail "$1 (pid $pid) does not answer, see $folder/$1"
    sleep 0.1
  done
}

start() {
  local name pid reason status=0 started=()
  for name in "$@"; do
    if pid=$(pid_of "$name"); then
      say "$name runs already, pid $pid"
    elif reason=$("missing_$name"); then
      say "skipped $name: $reason"
      rm -f "$folder/$name/env"
      status=77
    else
      mkdir -p "$folder/$name"
      "start_$name"
      started+=("$name")
    fi
  done
  for name in "${started[@]}"; do
    wait_for "$name"
  done
  (cat "$folder"/*/env 2>/dev/null || :) | tee "$folder/env"
  exit $status
}

# The process loses its command line before it closes its ports.
ended() { # NAME
  local port
  ! pid_of "$1" >/dev/null || return
  for port in $(cat "$folder/$1/ports"); do
    ! taken "$port" || return
  done
}

# Where a server does not end within 30 s of being asked, SIGKILL follows.
end() { # SIGNAL NAME
  local pid n
  pid=$(pid_of "$2") || return 0
  kill "-$1" "$pid"
  for ((n = 0; n < 300; n++)); do
    ! ended "$2" || { rm -f "$folder/$2/pid"; return 0; }
    sleep 0.1
  done
  [ "$1" != KILL ] || fail "$2 (pid $pid) does not end"
  say "$2 (pid $pid) did not end within 30 s and is killed"
  end KILL "$2"
}

status() {
  local name pid rc=0
  for name in "$@"; do
    if pid=$(pid_of "$name"); then
      echo "$name runs, pid $pid"
    else
      echo "$name does not run"
      rc=1
    fi
  done
  exit $rc
}

[ "$action" != status ] || status "$@"
[ "$action" = start ] || [ -d "$folder" ] || exit 0
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9
case $action in
  start) start "$@" ;;
  stop) for name in "$@"; do end TERM "$name"; done ;;
  kill) for name in "$@"; do end KILL "$name"; done ;;
esac
