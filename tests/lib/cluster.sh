# A cluster for tests: started in $WORK, stopped when the script exits for any reason. Sourced by areas.

# own_network: restarts the calling script in a new network namespace, without other clusters on this machine and without
# ports or tables of other programs.
own_network() {
  [ -z "${OWN_NETWORK:-}" ] || return 0
  export OWN_NETWORK="ironclad-tests-$$"
  ip netns add "$OWN_NETWORK" || { echo "FAIL network: a network namespace can't be made"; exit 1; }
  ip -n "$OWN_NETWORK" link set lo up
  ip -n "$OWN_NETWORK" link add node0 type bridge
  ip -n "$OWN_NETWORK" address add 198.51.100.10/24 dev node0
  ip -n "$OWN_NETWORK" link set node0 up
  ip -n "$OWN_NETWORK" route add default via 198.51.100.1
  # No host is behind that route. An unreachable resolver fails at once, as on a machine without a network.
  local resolver
  for resolver in $(awk '/^nameserver [0-9.]+$/ && $2 !~ /^127\./ {print $2}' /etc/resolv.conf); do
    ip -n "$OWN_NETWORK" route add unreachable "$resolver"
  done
  trap 'ip netns delete "$OWN_NETWORK"' EXIT
  nsenter --net="/run/netns/$OWN_NETWORK" bash -uo pipefail "$0"
  exit
}

# cluster_up NAME OPTION ...: starts a cluster with its data in $WORK/NAME; its kubeconfig is $WORK/NAME/admin.kubeconfig.
cluster_up() {
  local name=$1; shift
  CLUSTER="$WORK/$name" KUBECONFIG="$WORK/$name/admin.kubeconfig"
  export CLUSTER KUBECONFIG
  trap 'cluster_down' EXIT
  timeout 180 "$BIN/ironclad" up --data-dir "$CLUSTER" --pick-ports "$@" >"$WORK/$name.up.log" 2>&1 && return 0
  echo "FAIL $name/up: $(tail -3 "$WORK/$name.up.log" | tr '\n' ' ')"
  tail -n 5 "$CLUSTER"/logs/*.log 2>/dev/null
  return 1
}

# component_pid NAME: prints the process ID of a component of the cluster.
component_pid() {
  "$BIN/ironclad" status --data-dir "$CLUSTER" --output json | python3 -c \
    "import json, sys; print(next(c['pid'] for c in json.load(sys.stdin)['components'] if c['name'] == '$1'))"
}

# paused COMPONENT ...: suspends components with SIGSTOP; to the supervisor they are alive.
paused() {
  local component pid
  for component in "$@"; do
    pid=$(component_pid "$component")
    kill -STOP "$pid" && PAUSED="${PAUSED:-} $pid"
  done
}

cluster_down() {
  local pid
  for pid in ${PAUSED:-}; do kill -CONT "$pid" 2>/dev/null; done
  timeout 120 "$BIN/ironclad" down --data-dir "$CLUSTER" --purge >"$WORK/down.log" 2>&1; }
