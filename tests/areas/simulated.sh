# All binaries on loopback with the simulated runtime, on free ports: needs no root.
. tests/lib/need.sh
. tests/lib/cluster.sh
[ "$LIST" = yes ] && { list_checks simulated join_simulated upgrade backup etcd; echo simulated/package; exit; }
build || exit 1
export KUBECTL; KUBECTL=$(kubectl_path) || skip_all simulated "there is no kubectl on this machine"
cluster_up simulated --simulated --nodes 2 || exit 1
python3 tests/e2e/simulated.py --kubeconfig "$KUBECONFIG" --data-dir "$CLUSTER" --ironclad "$BIN/ironclad"
python3 tests/e2e/join_simulated.py --kubeconfig "$KUBECONFIG" --data-dir "$CLUSTER" --ironclad "$BIN/ironclad" --work "$WORK/joined"
# Root upgrades only to directories that other users can't write, unlike /tmp.
PROGRAMS="$WORK/upgrade"
[ "$(id -u)" -ne 0 ] || PROGRAMS=$(mktemp -d /var/lib/ironclad-tests.XXXXXX) || exit 1
python3 tests/e2e/upgrade.py --kubeconfig "$KUBECONFIG" --data-dir "$CLUSTER" --ironclad "$BIN/ironclad" --work "$PROGRAMS"
cluster_down
rm -rf "$PROGRAMS"
python3 tests/e2e/backup.py --ironclad "$BIN/ironclad" --work "$WORK/backup"
rm -rf "$WORK/backup"
# The Debian package holds all that a cluster needs, and its programs find each other where it puts them.
package_starts() {
  local package
  package=$(deploy/package --profile "$PROFILE" --output "$WORK" 2>"$WORK/package.log") || { tail -2 "$WORK/package.log"; return 1; }
  dpkg-deb --extract "$package" "$WORK/package" || return 1
  test -s "$WORK/package/usr/share/man/man1/kubelet.1.gz" || { echo "there is no manual page of the kubelet"; return 1; }
  local ironclad="$WORK/package/usr/bin/ironclad" status
  timeout 100 "$ironclad" up --simulated --data-dir "$WORK/packaged" --pick-ports
  status=$?
  timeout 100 "$ironclad" down --data-dir "$WORK/packaged" --purge
  return "$status"
}
if ! wanted simulated/package; then :
elif ! command -v dpkg-deb >/dev/null; then echo "skip simulated/package: dpkg-deb is missing"
elif why=$(package_starts 2>&1); then echo "ok simulated/package"
else echo "FAIL simulated/package: $(tail -3 <<<"$why" | tr '\n' ' ')"
fi
rm -rf "$WORK/package" "$WORK"/ironclad_*.deb
why=$(need etcd-server etcd-client curl iproute2) || { echo "skip etcd: $why"; exit 0; }
cluster_up borrowed --simulated || exit 1
python3 tests/e2e/etcd.py --kubeconfig "$KUBECONFIG" --data-dir "$CLUSTER" --ironclad "$BIN/ironclad"
