# Installs the prerequisites of tests. Sourced by areas.

# need PACKAGE ...: installs missing Debian packages; fails with the reason if that is not possible.
need() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ "${#missing[@]}" -eq 0 ] && return 0
  [ "$(id -u)" -eq 0 ] || { echo "needs root to install ${missing[*]}"; return 1; }
  export DEBIAN_FRONTEND=noninteractive
  { apt-get install -y --no-install-recommends "${missing[@]}" || { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; }; } >"$WORK/apt.log" 2>&1 ||
    { echo "could not install ${missing[*]}: $(tail -1 "$WORK/apt.log")"; return 1; }
}

# build: builds the binaries, once per run.
build() {
  [ -e "$WORK/built" ] && return 0
  echo "building the binaries (profile $PROFILE)"
  cargo build --profile "$PROFILE" --locked --quiet --bins && touch "$WORK/built"
}

# kubectl_path: prints the newest kubectl on the machine. Some packages install several versions beside the one in PATH.
kubectl_path() {
  local found
  found=$(command -v kubectl) || return 1
  ls "$(dirname "$(readlink -f "$found")")"/kubectl.1.* 2>/dev/null | sort -V | tail -1 | grep . || echo "$found"
}

# skip_all NAME WHY: prints one skip line for a whole area.
skip_all() { echo "skip $1: $2"; exit 0; }
