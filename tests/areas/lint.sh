# Formatting, lints, and the features of an installation.
. tests/lib/need.sh
[ "$LIST" = yes ] && { printf 'lint/format\nlint/clippy\nlint/installed\n'; exit; }
if ! wanted lint/format; then :
elif cargo fmt --all --check >/dev/null 2>&1; then echo "ok lint/format"; else echo "FAIL lint/format: run cargo fmt --all"; fi
if ! wanted lint/clippy; then :
elif cargo clippy --workspace --all-targets --locked --quiet -- -D warnings; then echo "ok lint/clippy"; else echo "FAIL lint/clippy: see the warnings above"; fi
# Without the features that tests add. Clippy has compiled the other dependencies.
if ! wanted lint/installed; then :
elif cargo check --workspace --bins --locked --quiet; then echo "ok lint/installed"; else echo "FAIL lint/installed: see the errors above"; fi
