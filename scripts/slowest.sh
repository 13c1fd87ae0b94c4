#!/bin/sh
# Runs a go test, and then prints its ten slowest packages: the seconds that each ran, of those without a cached result.
# Its exit code is that of the test.
#
# Usage: scripts/slowest.sh GO test [ARGUMENT...]
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

{
	"$@" 2>&1
	echo $? >"$work/code"
} | tee "$work/out"
echo 'test: the slowest packages'
awk '($1 == "ok" || $1 == "FAIL") && $3 ~ /^[0-9.]+s$/ { sub(/s$/, "", $3); printf "%8.1fs  %s\n", $3, $2 }' "$work/out" | sort -rn | head -n 10
exit "$(cat "$work/code")"
