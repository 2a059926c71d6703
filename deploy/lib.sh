# Shared by deploy/up and deploy/package. Sourced; `here` is the root of the repository.

programs=(kvstore kube-apiserver kube-scheduler kube-controller-manager kubelet kube-proxy cluster-dns ironclad)

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

# build PROFILE: builds the programs; afterwards they are in $built.
build() {
  local args=() program
  for program in "${programs[@]}"; do args+=(--bin "$program"); done
  if [ -e "$jemalloc" ]; then export JEMALLOC_OVERRIDE="$jemalloc"; fi
  say "building (the first time takes some minutes)"
  cargo build --profile "$1" --locked --manifest-path "$here/Cargo.toml" "${args[@]}" || fail "the build failed; see above"
  built="${CARGO_TARGET_DIR:-$here/target}/${1/#dev/debug}"
}
