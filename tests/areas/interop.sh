# Other projects' client libraries: the published Python client, client-go's informers, and all of its typed clients.
. tests/lib/need.sh
. tests/lib/cluster.sh
[ "$LIST" = yes ] && { printf 'interop/python\ninterop/go\ninterop/typed\n'; exit; }
build || exit 1
cluster_up interop --simulated || exit 1
if ! wanted interop/python; then :
elif python3 -m venv "$WORK/venv" >/dev/null 2>&1 && "$WORK/venv/bin/pip" -q install kubernetes >"$WORK/pip.log" 2>&1; then
  "$WORK/venv/bin/python" tests/interop/python_client.py "$KUBECONFIG"
else
  echo "skip interop/python: the Python client could not be installed: $(tail -1 "$WORK/pip.log" 2>/dev/null)"
fi
if ! wanted interop/go && ! wanted interop/typed; then :
elif ! command -v go >/dev/null; then
  echo "skip interop/go: there is no Go toolchain"
elif (cd tests/interop/go && go build -o "$WORK/interop-go" . && go build -o "$WORK/interop-typed" ./typed) >"$WORK/go.log" 2>&1; then
  "$WORK/interop-go" "$KUBECONFIG"
  "$WORK/interop-typed" "$KUBECONFIG"
else
  echo "skip interop/go: it could not be built: $(tail -1 "$WORK/go.log")"
fi
