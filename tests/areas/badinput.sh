# Bad input of every kind: one sentence, an exit code, no damage. Needs no root; with root, a small disk is mounted too.
. tests/lib/need.sh
. tests/lib/cluster.sh
[ "$LIST" = yes ] && { list_checks bad_input; exit; }
build || exit 1
why=$(need etcd-client openssl iproute2) || skip_all badinput "$why"
[ "$(id -u)" -ne 0 ] || own_network
export KUBECTL; KUBECTL=$(kubectl_path) || skip_all badinput "there is no kubectl on this machine"
cluster_up badinput --simulated || exit 1
python3 tests/e2e/bad_input.py --bin-dir "$BIN" --kubeconfig "$KUBECONFIG" --data-dir "$CLUSTER" --work "$WORK/badinput-files"
