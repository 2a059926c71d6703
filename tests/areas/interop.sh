# Other projects' client libraries and extensions: Python's client and kopf, the JavaScript client, client-go, operators on
# controller-runtime and kube-rs, Helm's library, the sample extension server, client-go with CBOR, a rolling restart of three API servers.
# Versions are pinned in tests/interop.
. tests/lib/need.sh
. tests/lib/clients.sh
. tests/lib/cluster.sh
[ "$LIST" = yes ] && { printf 'interop/%s\n' $GO_PROGRAMS $PYTHON_PROGRAMS javascript kube-rs extension cbor rolling; exit; }

# The network of its own has no way to the registries: everything is built before.
if [ -z "${OWN_NETWORK:-}" ]; then
  build || exit 1
  build_clients || exit 1
  cat "$CLIENTS/notes"
  if why=$(need iproute2 openssl); then
    [ "$(id -u)" -ne 0 ] || own_network
  fi
fi

# client NAME COMMAND...: runs a client, at most 10 minutes. One that ends early without a failed check is a failure as well.
client() {
  local name=$1 status=0
  shift
  timeout --foreground -k 5 600 "$@" | tee "$WORK/client.log" || status=$?
  [ "$status" -eq 0 ] || grep -q ^FAIL "$WORK/client.log" || echo "FAIL interop/$name: ended with status $status"
}

cluster_up interop --simulated || exit 1
for name in $PYTHON_PROGRAMS; do
  program=${name/python-/python_}
  if wanted "interop/$name" && [ -d "$CLIENTS/venv" ]; then
    client "$name" "$CLIENTS/venv/bin/python" "tests/interop/${program/%python/python_client}.py" "$KUBECONFIG"
  fi
done
for name in $GO_PROGRAMS; do [ ! -x "$CLIENTS/$name" ] || client "$name" "$CLIENTS/$name" "$KUBECONFIG"; done
[ ! -d "$CLIENTS/javascript" ] || client javascript node "$CLIENTS/javascript/client.js" "$KUBECONFIG"
[ ! -x "$CLIENTS/kube-rs" ] || client kube-rs "$CLIENTS/kube-rs" "$KUBECONFIG"
if [ ! -x "$CLIENTS/extension" ]; then :
elif [ -z "${OWN_NETWORK:-}" ]; then echo "skip interop/extension: needs root for a network namespace"
elif ! KUBECTL=$(kubectl_path); then echo "skip interop/extension: there is no kubectl on this machine"
else KUBECTL=$KUBECTL client extension python3 tests/interop/extension.py "$KUBECONFIG" "$CLUSTER" "$CLIENTS/extension"
fi
if [ -x "$CLIENTS/cbor" ]; then
  KUBE_FEATURE_ClientsAllowCBOR=true KUBE_FEATURE_ClientsPreferCBOR=true \
    client cbor "$CLIENTS/cbor" "$KUBECONFIG" "$(component_pid kube-apiserver)"
fi
# Last: its servers leave their addresses in the endpoints of the Service kubernetes for a while.
if [ -x "$CLIENTS/rolling" ]; then
  client rolling "$CLIENTS/rolling" "$KUBECONFIG" "$(component_pid kube-apiserver)"
fi
