# Everything that the other areas need of this repository, in one build: cargo compiles a crate again for another set of features, and
# the tests add some. So the binaries have what tests add to libraries (tokio's stopped clock); lint/installed checks those without.
. tests/lib/need.sh
[ "$LIST" = yes ] && { echo build; exit; }
if build_all; then echo "ok build"; else echo "FAIL build: see the errors above"; fi
