# All binaries on loopback with the simulated runtime, on free ports: needs no root.
. tests/lib/need.sh
. tests/lib/cluster.sh
[ "$LIST" = yes ] && { list_checks simulated join_simulated upgrade backup earlier_data etcd; printf 'simulated/package\nsimulated/images\nsimulated/bundle\n'; exit; }
build || exit 1
export KUBECTL; KUBECTL=$(kubectl_path) || skip_all simulated "there is no kubectl on this machine"
# The Debian package holds all that a cluster needs, and its programs find each other where it puts them.
package_starts() {
  local package
  package=$(deploy/package --bin-dir "$BIN" --output "$WORK" 2>"$WORK/package.log") || { tail -2 "$WORK/package.log"; return 1; }
  dpkg-deb --extract "$package" "$WORK/package" || return 1
  test -s "$WORK/package/usr/share/man/man1/kubelet.1.gz" || { echo "there is no manual page of the kubelet"; return 1; }
  local ironclad="$WORK/package/usr/bin/ironclad" status
  timeout 100 "$ironclad" up --simulated --data-dir "$WORK/packaged" --pick-ports
  status=$?
  timeout 100 "$ironclad" down --data-dir "$WORK/packaged" --purge
  return "$status"
}
# unpack_image ARCHIVE DIR: compares the blobs with their digests, and extracts the files of the image to DIR.
unpack_image() {
  local layout="$2.layout" layer
  mkdir -p "$layout" "$2"
  tar -xf "$1" -C "$layout" || return 1
  (cd "$layout/blobs/sha256" && for blob in *; do echo "$blob  $blob"; done | sha256sum --quiet --check) || return 1
  layer=$(grep -ho '"application/vnd.oci.image.layer[^}]*sha256:[0-9a-f]*' "$layout"/blobs/sha256/* | grep -o '[0-9a-f]*$')
  tar -xzf "$layout/blobs/sha256/$layer" -C "$2"
}
# Rules with each extension that kube-proxy names.
IPTABLES_RULES='*nat
:X - [0:0]
-A X -m comment --comment "a b" -m statistic --mode random --probability 0.5 -j RETURN
-A X -m addrtype --dst-type LOCAL -m conntrack --ctstate INVALID -m mark --mark 0x4000/0x4000 -j RETURN
-A X -m recent --name R --rcheck --seconds 10 --reap -j RETURN
-A X -p tcp -m tcp --dport 80 -j DNAT --to-destination ADDRESS
-A X -p sctp -m sctp --dport 80 -j MARK --or-mark 0x4000
-A X -j MASQUERADE --random-fully
COMMIT
*filter
-A FORWARD -p tcp -m tcp -j REJECT --reject-with tcp-reset
COMMIT
'
# The programs that an image has beside its own work in it, without any file of the machine.
tools_work() {
  local proxy="$WORK/image/kube-proxy/" network="$WORK/image/ironclad-cni/" inside=(unshare --net chroot)
  "${inside[@]}" "$network" /usr/local/bin/ironclad-cni --version | grep -q "^ironclad-cni " || { echo "ironclad-cni does not start"; return 1; }
  "${inside[@]}" "$network" /usr/sbin/nft add table ip x || return 1
  "${inside[@]}" "$proxy" /usr/local/bin/kube-proxy --version | grep -q "^kube-proxy " || { echo "kube-proxy does not start"; return 1; }
  "${inside[@]}" "$proxy" /usr/sbin/nft add table ip x || return 1
  "${inside[@]}" "$proxy" /usr/sbin/conntrack --version >&2 || return 1
  "${inside[@]}" "$proxy" /usr/sbin/iptables-restore --noflush <<<"${IPTABLES_RULES/ADDRESS/192.0.2.1:80}" || return 1
  "${inside[@]}" "$proxy" /usr/sbin/ip6tables-restore --noflush <<<"${IPTABLES_RULES/ADDRESS/[2001:db8::1]:80}" || return 1
  "${inside[@]}" "$proxy" /usr/sbin/iptables-save >&2 || return 1
}
# An image depends on its program only, and the program finds its libraries in it.
images_work() {
  local image name programs=(cluster-dns)
  # Only root changes its root directory, and only these have programs beside their own.
  if [ "$(id -u)" -eq 0 ]; then
    need nftables conntrack iptables || return 3
    programs+=(ironclad-cni kube-proxy)
  fi
  deploy/images --bin-dir "$BIN" --output "$WORK/first" "${programs[@]}" >"$WORK/images.log" 2>&1 || { tail -2 "$WORK/images.log"; return 1; }
  deploy/images --bin-dir "$BIN" --output "$WORK/second" cluster-dns >&2 2>/dev/null || return 1
  for name in "${programs[@]}"; do
    image=$(echo "$WORK/first/${name}"_*.oci.tar)
    [ "$name" != cluster-dns ] || cmp "$image" "$WORK/second/$(basename "$image")" || return 1
    unpack_image "$image" "$WORK/image/$name" || return 1
  done
  [ "$(id -u)" -eq 0 ] || return 0
  chroot "$WORK/image/cluster-dns" /usr/local/bin/cluster-dns --version | grep -q "^cluster-dns " || { echo "it does not start"; return 1; }
  tools_work
}
# The bundle brings everything that the package needs, and notices a damaged file.
bundle_is_whole() {
  local bundle="$WORK/bundle" archive image=("$WORK"/first/*.oci.tar)
  [ -e "${image[0]}" ] || image=()
  archive=$(deploy/bundle --package "$(echo "$WORK"/ironclad_*.deb)" --output "$WORK" "${image[@]}" 2>"$WORK/bundle.log") ||
    { tail -3 "$WORK/bundle.log"; return 1; }
  mkdir -p "$bundle" && tar -xf "$archive" -C "$bundle" --strip-components=1 && "$bundle/install" --check || return 1
  : >"$WORK/status"
  # On a machine without any package and without a network, as far as dependencies go.
  mkdir -p "$WORK/lists/partial"
  echo "deb [trusted=yes] file:$bundle/packages ./" >"$WORK/sources.list"
  local options=(-o "Dir::Etc::SourceList=$WORK/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::lists=$WORK/lists"
    -o "Dir::State::status=$WORK/status" -o Debug::NoLocking=true)
  apt-get "${options[@]}" update >&2 || return 1
  apt-get "${options[@]}" --simulate --no-install-recommends install ironclad >&2 || { echo "a package is missing"; return 1; }
  : >"$bundle/packages/unlisted_1_all.deb"
  if "$bundle/install" --check 2>/dev/null; then echo "an unlisted file was not noticed"; return 1; fi
  rm "$bundle/packages/unlisted_1_all.deb"
  printf x >>"$(ls "$bundle"/packages/containerd_*.deb)"
  if "$bundle/install" --check 2>/dev/null; then echo "a damaged file was not noticed"; return 1; fi
}

# The packages that a bundle brings come from a network, and the clusters below have one of their own.
check_packages() {
  if ! wanted simulated/package; then :
  elif ! command -v dpkg-deb >/dev/null; then echo "skip simulated/package: dpkg-deb is missing"
  elif why=$(package_starts 2>&1); then echo "ok simulated/package"
  else echo "FAIL simulated/package: $(tail -3 <<<"$why" | tr '\n' ' ')"
  fi
  rm -rf "$WORK/package"
  if ! wanted simulated/images; then :
  elif ! command -v dpkg >/dev/null; then echo "skip simulated/images: dpkg is missing"
  elif why=$(images_work 2>&1); then echo "ok simulated/images"
  elif [ $? -eq 3 ]; then echo "skip simulated/images: $(tail -1 <<<"$why")"
  else echo "FAIL simulated/images: $(tail -3 <<<"$why" | tr '\n' ' ')"
  fi
  if ! wanted simulated/bundle; then :
  elif ! [ -e "$(echo "$WORK"/ironclad_*.deb)" ]; then echo "skip simulated/bundle: simulated/package made no package"
  elif ! apt-get --print-uris --yes download containerd >/dev/null 2>&1; then echo "skip simulated/bundle: apt has no index of packages"
  elif why=$(bundle_is_whole 2>&1); then echo "ok simulated/bundle"
  else echo "FAIL simulated/bundle: $(tail -3 <<<"$why" | tr '\n' ' ')"
  fi
  rm -rf "$WORK"/ironclad_*.deb "$WORK"/ironclad-*.tar "$WORK/bundle" "$WORK/image" "$WORK/first" "$WORK/second"
}
if [ -z "${OWN_NETWORK:-}" ]; then
  check_packages
  why=$(need iproute2 etcd-server etcd-client curl) || echo "note: $why"
  [ "$(id -u)" -ne 0 ] || ! command -v ip >/dev/null || own_network
fi
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
python3 tests/e2e/earlier_data.py --ironclad "$BIN/ironclad" --work "$WORK/earlier"
rm -rf "$WORK/earlier"
why=$(need etcd-server etcd-client curl iproute2) || { echo "skip etcd: $why"; exit 0; }
cluster_up borrowed --simulated || exit 1
python3 tests/e2e/etcd.py --kubeconfig "$KUBECONFIG" --data-dir "$CLUSTER" --ironclad "$BIN/ironclad"
