# Other projects' client libraries and extensions: Python's client and kopf, the JavaScript client, client-go, operators on
# controller-runtime and kube-rs, Helm's library, the sample extension server, client-go with CBOR, a rolling restart of three API servers.
# Versions are pinned in tests/interop.
. tests/lib/need.sh
. tests/lib/cluster.sh
GO_PROGRAMS="go typed operator helm" PYTHON_PROGRAMS="python python-operator"
[ "$LIST" = yes ] && { printf 'interop/%s\n' $GO_PROGRAMS $PYTHON_PROGRAMS javascript kube-rs extension cbor rolling; exit; }

# build_go NAME: builds a program of the Go module; `go` is its main package.
build_go() {
  local package=./$1
  case $1 in
    go) package=. ;;
    extension) package=k8s.io/sample-apiserver ;;
  esac
  (cd tests/interop/go && go build -o "$WORK/interop-$1" "$package") >"$WORK/go-$1.log" 2>&1
}

prepare() {
  local name
  for name in $GO_PROGRAMS extension cbor rolling; do
    if ! wanted "interop/$name"; then :
    elif ! command -v go >/dev/null; then echo "skip interop/$name: there is no Go toolchain"
    elif ! build_go "$name"; then echo "skip interop/$name: it could not be built: $(tail -1 "$WORK/go-$name.log")"
    fi
  done
  if ! wanted interop/python; then :
  elif ! python3 -m venv "$WORK/venv" >/dev/null 2>&1 || ! "$WORK/venv/bin/pip" -q install -r tests/interop/requirements.txt >"$WORK/pip.log" 2>&1; then
    echo "skip interop/python: the Python packages could not be installed: $(tail -1 "$WORK/pip.log" 2>/dev/null)"
    rm -rf "$WORK/venv"
  fi
  prepare_javascript
  prepare_kube_rs
}

prepare_javascript() {
  wanted interop/javascript || return 0
  command -v npm >/dev/null || { echo "skip interop/javascript: there is no npm"; return 0; }
  cp -r tests/interop/javascript "$WORK/javascript"
  (cd "$WORK/javascript" && npm ci --ignore-scripts --no-audit --no-fund) >"$WORK/npm.log" 2>&1 && return 0
  echo "skip interop/javascript: its packages could not be installed: $(grep -m1 'npm error' "$WORK/npm.log")"
  rm -rf "$WORK/javascript"
}

# Its dependencies are fetched first: without a registry this is a skip, and code that doesn't compile is a failure.
prepare_kube_rs() {
  local manifest=tests/interop/kube-rs/Cargo.toml
  wanted interop/kube-rs || return 0
  if ! cargo fetch --locked --manifest-path "$manifest" >"$WORK/kube-rs.log" 2>&1; then
    echo "skip interop/kube-rs: its crates could not be fetched: $(tail -1 "$WORK/kube-rs.log")"
  elif ! CARGO_TARGET_DIR="$CARGO_TARGET_DIR/kube-rs" cargo build --locked --quiet --manifest-path "$manifest" >"$WORK/kube-rs.log" 2>&1; then
    echo "FAIL interop/kube-rs/build: $(grep -m1 '^error' "$WORK/kube-rs.log")"
  else
    cp "$CARGO_TARGET_DIR/kube-rs/debug/kube-operator" "$WORK/interop-kube-rs"
  fi
}

# The network of its own has no way to the registries: everything is built before.
if [ -z "${OWN_NETWORK:-}" ]; then
  build || exit 1
  prepare
  if why=$(need iproute2 openssl); then
    [ "$(id -u)" -ne 0 ] || own_network
  fi
fi

# client NAME COMMAND...: runs a client, at most 5 minutes. One that ends early without a failed check is a failure as well.
client() {
  local name=$1 status=0
  shift
  timeout -k 5 300 "$@" | tee "$WORK/client.log" || status=$?
  [ "$status" -eq 0 ] || grep -q ^FAIL "$WORK/client.log" || echo "FAIL interop/$name: ended with status $status"
}

cluster_up interop --simulated || exit 1
for name in $PYTHON_PROGRAMS; do
  program=${name/python-/python_}
  if wanted "interop/$name" && [ -d "$WORK/venv" ]; then
    client "$name" "$WORK/venv/bin/python" "tests/interop/${program/%python/python_client}.py" "$KUBECONFIG"
  fi
done
for name in $GO_PROGRAMS; do [ ! -x "$WORK/interop-$name" ] || client "$name" "$WORK/interop-$name" "$KUBECONFIG"; done
[ ! -d "$WORK/javascript" ] || client javascript node "$WORK/javascript/client.js" "$KUBECONFIG"
[ ! -x "$WORK/interop-kube-rs" ] || client kube-rs "$WORK/interop-kube-rs" "$KUBECONFIG"
if [ ! -x "$WORK/interop-extension" ]; then :
elif [ -z "${OWN_NETWORK:-}" ]; then echo "skip interop/extension: needs root for a network namespace"
elif ! KUBECTL=$(kubectl_path); then echo "skip interop/extension: there is no kubectl on this machine"
else KUBECTL=$KUBECTL client extension python3 tests/interop/extension.py "$KUBECONFIG" "$CLUSTER" "$WORK/interop-extension"
fi
if [ -x "$WORK/interop-cbor" ]; then
  KUBE_FEATURE_ClientsAllowCBOR=true KUBE_FEATURE_ClientsPreferCBOR=true \
    client cbor "$WORK/interop-cbor" "$KUBECONFIG" "$(component_pid kube-apiserver)"
fi
# Last: its servers leave their addresses in the endpoints of the Service kubernetes for a while.
if [ -x "$WORK/interop-rolling" ]; then
  client rolling "$WORK/interop-rolling" "$KUBECONFIG" "$(component_pid kube-apiserver)"
fi
