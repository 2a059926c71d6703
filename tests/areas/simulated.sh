# All binaries on loopback with the simulated runtime, on free ports: needs no root.
. tests/lib/need.sh
. tests/lib/cluster.sh
[ "$LIST" = yes ] && { list_checks simulated join_simulated upgrade backup etcd; printf 'simulated/package\nsimulated/images\nsimulated/bundle\n'; exit; }
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
rm -rf "$WORK/package"
# An image depends on its program only, and the program finds its libraries in it.
images_work() {
  local image root="$WORK/image" layer
  image=$(deploy/images --bin-dir "$BIN" --output "$WORK/first" cluster-dns 2>"$WORK/images.log") || { tail -2 "$WORK/images.log"; return 1; }
  deploy/images --bin-dir "$BIN" --output "$WORK/second" cluster-dns >&2 2>/dev/null || return 1
  cmp "$image" "$WORK/second/$(basename "$image")" || return 1
  mkdir -p "$root/layout" "$root/files"
  tar -xf "$image" -C "$root/layout" || return 1
  (cd "$root/layout/blobs/sha256" && for blob in *; do echo "$blob  $blob"; done | sha256sum --quiet --check) || return 1
  layer=$(grep -ho '"application/vnd.oci.image.layer[^}]*sha256:[0-9a-f]*' "$root"/layout/blobs/sha256/* | grep -o '[0-9a-f]*$')
  tar -xzf "$root/layout/blobs/sha256/$layer" -C "$root/files" || return 1
  [ "$(id -u)" -ne 0 ] || chroot "$root/files" /usr/local/bin/cluster-dns --version | grep -q "^cluster-dns " || { echo "it does not start"; return 1; }
}
if ! wanted simulated/images; then :
elif ! command -v dpkg >/dev/null; then echo "skip simulated/images: dpkg is missing"
elif why=$(images_work 2>&1); then echo "ok simulated/images"
else echo "FAIL simulated/images: $(tail -3 <<<"$why" | tr '\n' ' ')"
fi
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
if ! wanted simulated/bundle; then :
elif ! [ -e "$(echo "$WORK"/ironclad_*.deb)" ]; then echo "skip simulated/bundle: simulated/package made no package"
elif ! apt-get --print-uris --yes download containerd >/dev/null 2>&1; then echo "skip simulated/bundle: apt has no index of packages"
elif why=$(bundle_is_whole 2>&1); then echo "ok simulated/bundle"
else echo "FAIL simulated/bundle: $(tail -3 <<<"$why" | tr '\n' ' ')"
fi
rm -rf "$WORK"/ironclad_*.deb "$WORK"/ironclad-*.tar "$WORK/bundle" "$WORK/image" "$WORK/first" "$WORK/second"
why=$(need etcd-server etcd-client curl iproute2) || { echo "skip etcd: $why"; exit 0; }
cluster_up borrowed --simulated || exit 1
python3 tests/e2e/etcd.py --kubeconfig "$KUBECONFIG" --data-dir "$CLUSTER" --ironclad "$BIN/ironclad"
