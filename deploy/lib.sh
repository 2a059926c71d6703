# Shared by the programs in deploy/. Sourced; `here` is the root of the repository.

programs=(kvstore kube-apiserver kube-scheduler kube-controller-manager kubelet kube-proxy cluster-dns ironclad-cni ironclad-gateway ironclad)

# program package: a program that a cluster needs, and the Debian package that brings it.
requirements='containerd containerd
runc runc
nft nftables
conntrack conntrack
ip iproute2
iptables iptables
busybox busybox-static
openssl openssl'
plugins=containernetworking-plugins
# The allocator of the store and the API server. Without this package, cargo compiles its C code, which takes longer.
jemalloc=/usr/lib/$(gcc -print-multiarch 2>/dev/null || echo "$(uname -m)-linux-gnu")/libjemalloc_pic.a
jemalloc_package=libjemalloc-dev

say() { printf 'deploy/%s: %s\n' "$(basename "$0")" "$*" >&2; }
fail() { say "$*"; exit 1; }

toolchain() {
  export PATH=$PATH:$HOME/.cargo/bin
  # Under sudo the toolchain is usually that of the user who called it.
  if ! command -v cargo >/dev/null && [ -n "${SUDO_USER:-}" ]; then
    PATH=$PATH:$(getent passwd "$SUDO_USER" | cut -d: -f6)/.cargo/bin
    export RUSTUP_HOME=${RUSTUP_HOME:-$(getent passwd "$SUDO_USER" | cut -d: -f6)/.rustup}
  fi
  command -v cargo >/dev/null ||
    fail "no Rust toolchain: install one with \`curl https://sh.rustup.rs -sSf | sh\`, or \`apt-get install rustup && rustup default stable\`, and run this again"
}

# build PROFILE [PROGRAM ...]: builds the programs, by default all; afterwards they are in $built.
build() {
  local profile=$1 args=() program
  shift
  [ $# -gt 0 ] || set -- "${programs[@]}"
  for program in "$@"; do args+=(--bin "$program"); done
  if [ -e "$jemalloc" ]; then export JEMALLOC_OVERRIDE="$jemalloc"; fi
  say "building (the first time takes some minutes)"
  cargo build --profile "$profile" --locked --manifest-path "$here/Cargo.toml" "${args[@]}" || fail "the build failed; see above"
  built="${CARGO_TARGET_DIR:-$here/target}/${profile/#dev/debug}"
}

# build_reproducibly PROFILE [PROGRAM ...]: as build, in a directory of its own, without the paths of this machine.
build_reproducibly() {
  export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$here/target}/reproducible"
  local registry=${CARGO_HOME:-$HOME/.cargo} prefixes
  prefixes=("$registry=/cargo" "$here=/ironclad" "$CARGO_TARGET_DIR=/target")
  # Separated by the character that cargo expects: a path may have blanks.
  CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f'; echo "${prefixes[*]/#/--remap-path-prefix=}")
  export CARGO_ENCODED_RUSTFLAGS CFLAGS="${prefixes[*]/#/-ffile-prefix-map=}" CARGO_INCREMENTAL=0
  build "$@"
}
