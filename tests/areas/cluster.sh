# A real cluster on this machine: real containers, real nftables, the real kubectl.
. tests/lib/need.sh
. tests/lib/cluster.sh
build || exit 1
[ "$(id -u)" -eq 0 ] || skip_all cluster "needs root"
why=$(need containerd runc containernetworking-plugins nftables conntrack iproute2 busybox-static curl) || skip_all cluster "$why"
own_network
export KUBECTL; KUBECTL=$(kubectl_path) || skip_all cluster "there is no kubectl on this machine"
python3 tests/e2e/purge.py --note "$WORK/before.json"
cluster_up cluster || exit 1
python3 tests/e2e/person.py --kubeconfig "$KUBECONFIG" --example deploy/examples/hello.yaml
python3 tests/e2e/survive.py --kubeconfig "$KUBECONFIG" --data-dir "$CLUSTER" --ironclad "$BIN/ironclad"
if [ "$QUICK" = yes ]; then
  echo "skip cluster/kit: left out by --quick"
elif [ -x "$SHARED/accept/cluster" ]; then
  tests/lib/accept.py --retry 2 --expect tests/accept/cluster.expected-failures ${STATE:+--state "$STATE"} -- \
    timeout 900 "$SHARED/accept/cluster" --kubeconfig "$KUBECONFIG" --image ironclad.local/busybox:1 --kubectl "$KUBECTL" --jobs 6
else
  echo "skip cluster/kit: $SHARED/accept/cluster is not there"
fi
python3 tests/e2e/purge.py --data-dir "$CLUSTER" --ironclad "$BIN/ironclad" --before "$WORK/before.json"
