# Other projects' client libraries and extensions: Python's client and kopf, client-go, an operator on controller-runtime, Helm's
# library, the sample extension server. Versions are pinned in tests/interop; Go's build cache is outside the clone.
. tests/lib/need.sh
. tests/lib/cluster.sh
GO_PROGRAMS="go typed operator helm" PYTHON_PROGRAMS="python python-operator"
[ "$LIST" = yes ] && { printf 'interop/%s\n' $GO_PROGRAMS $PYTHON_PROGRAMS extension; exit; }

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
  for name in $GO_PROGRAMS extension; do
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
}

# The network of its own has no way to the registries: everything is built before.
if [ -z "${OWN_NETWORK:-}" ]; then
  build || exit 1
  prepare
  if why=$(need iproute2 openssl); then
    [ "$(id -u)" -ne 0 ] || own_network
  fi
fi

cluster_up interop --simulated || exit 1
for name in $PYTHON_PROGRAMS; do
  program=${name/python-/python_}
  if wanted "interop/$name" && [ -d "$WORK/venv" ]; then
    "$WORK/venv/bin/python" "tests/interop/${program/%python/python_client}.py" "$KUBECONFIG"
  fi
done
for name in $GO_PROGRAMS; do [ ! -x "$WORK/interop-$name" ] || "$WORK/interop-$name" "$KUBECONFIG"; done
if [ ! -x "$WORK/interop-extension" ]; then :
elif [ -z "${OWN_NETWORK:-}" ]; then echo "skip interop/extension: needs root for a network namespace"
elif ! KUBECTL=$(kubectl_path); then echo "skip interop/extension: there is no kubectl on this machine"
else KUBECTL=$KUBECTL python3 tests/interop/extension.py "$KUBECONFIG" "$CLUSTER" "$WORK/interop-extension"
fi
