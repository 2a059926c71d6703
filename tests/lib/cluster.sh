# A cluster for tests: started in $WORK, ended with the script, whatever happens. Sourced by areas.

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

# paused COMPONENT ...: stops components of the cluster without ending them (the supervisor sees them alive).
paused() {
  local component pid
  for component in "$@"; do
    pid=$("$BIN/ironclad" status --data-dir "$CLUSTER" --output json | python3 -c \
      "import json, sys; print(next(c['pid'] for c in json.load(sys.stdin)['components'] if c['name'] == '$component'))")
    kill -STOP "$pid" && PAUSED="${PAUSED:-} $pid"
  done
}

cluster_down() {
  local pid
  for pid in ${PAUSED:-}; do kill -CONT "$pid" 2>/dev/null; done
  timeout 120 "$BIN/ironclad" down --data-dir "$CLUSTER" --purge >"$WORK/down.log" 2>&1; }
