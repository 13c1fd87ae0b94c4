#!/bin/sh
# Runs make targets one after another, and says how long each took. The first that
# fails ends it.
#
# Usage: scripts/check.sh TARGET...   each with variables behind it, in one argument; two with + between run at once
set -eu
cd "$(dirname "$0")/.."

# Tests that cross-compile, or build another version, run here and not in every make test.
export ZLIMIT_EXHAUSTIVE=1

# make lint does what go vet would, for all packages.
export GOFLAGS="${GOFLAGS:-} -vet=off"

# Compilers and tests take memory rather than time.
export GOGC="${GOGC:-400}"

# What make infra installs comes over the network, while processors do other things.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case "$*" in
*infra*) "${MAKE:-make}" --no-print-directory infra-tools >"$work/installed" 2>&1 & ;;
esac

# run NAME: one target, and how long it took.
run() {
	from=$(date +%s)
	# shellcheck disable=SC2086 # a target and its variables are words
	"${MAKE:-make}" --no-print-directory $1 || return
	echo "check: $1 took $(($(date +%s) - from))s"
}

began=$(date +%s)
for targets; do
	echo "check: $targets"
	if [ "${targets#*infra}" != "$targets" ]; then
		wait || true # make infra installs again what is missing, and says why it cannot
		cat "$work/installed"
	fi
	first=${targets%%+*}
	second=${targets#"$first"}
	if [ -n "$second" ]; then
		run "${second#+}" >"$work/second" 2>&1 &
	fi
	run "$first"
	if [ -n "$second" ]; then
		code=0
		wait $! || code=$?
		cat "$work/second"
		[ "$code" = 0 ] || exit "$code"
	fi
done
echo "check: passed in $(($(date +%s) - began))s"
