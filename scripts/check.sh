#!/bin/sh
# Runs make targets one after another, and says how long each took. The first that
# fails ends it.
#
# Usage: scripts/check.sh TARGET...   each with variables behind it, in one argument
set -eu
cd "$(dirname "$0")/.."

# Tests that cross-compile, or build another version, run here and not in every make test.
export ZLIMIT_EXHAUSTIVE=1

# Tests take memory rather than time.
export GOGC="${GOGC:-400}"

# What make infra installs comes over the network, while processors do other things.
installed=$(mktemp)
trap 'rm -f "$installed"' EXIT
case " $* " in
*" infra "*) "${MAKE:-make}" --no-print-directory infra-tools >"$installed" 2>&1 & ;;
esac

began=$(date +%s)
for target; do
	from=$(date +%s)
	echo "check: $target"
	if [ "$target" = infra ]; then
		wait || true # make infra installs again what is missing, and says why it cannot
		cat "$installed"
	fi
	# shellcheck disable=SC2086 # a target and its variables are words
	"${MAKE:-make}" --no-print-directory $target
	echo "check: $target took $(($(date +%s) - from))s"
done
echo "check: passed in $(($(date +%s) - began))s"
