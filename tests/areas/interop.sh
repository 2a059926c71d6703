# Other projects' client libraries and extensions: the published Python client, client-go's informers and typed clients, an
# operator on controller-runtime. Versions are pinned in the folders of tests/interop; Go's build cache is outside the clone.
. tests/lib/need.sh
. tests/lib/cluster.sh
GO_PROGRAMS="go typed operator helm"
[ "$LIST" = yes ] && { echo interop/python; printf 'interop/%s\n' $GO_PROGRAMS; exit; }
build || exit 1

# build_go NAME: builds a program of the Go module; `go` is its main package.
build_go() {
  local package=./$1
  [ "$1" = go ] && package=.
  (cd tests/interop/go && go build -o "$WORK/interop-$1" "$package") >"$WORK/go-$1.log" 2>&1
}

built=""
for name in $GO_PROGRAMS; do
  if ! wanted "interop/$name"; then :
  elif ! command -v go >/dev/null; then echo "skip interop/$name: there is no Go toolchain"
  elif build_go "$name"; then built="$built $name"
  else echo "skip interop/$name: it could not be built: $(tail -1 "$WORK/go-$name.log")"
  fi
done
python=no
if ! wanted interop/python; then :
elif python3 -m venv "$WORK/venv" >/dev/null 2>&1 && "$WORK/venv/bin/pip" -q install kubernetes >"$WORK/pip.log" 2>&1; then python=yes
else echo "skip interop/python: the Python client could not be installed: $(tail -1 "$WORK/pip.log" 2>/dev/null)"
fi

cluster_up interop --simulated || exit 1
[ "$python" = no ] || "$WORK/venv/bin/python" tests/interop/python_client.py "$KUBECONFIG"
for name in $built; do "$WORK/interop-$name" "$KUBECONFIG"; done
