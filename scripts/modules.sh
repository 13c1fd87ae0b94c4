#!/bin/sh
# Runs a command in each nested module but tools, whose dependencies are not ours:
# those with a go.mod below the root. The command runs in the module's directory.
#
# Usage: scripts/modules.sh COMMAND [ARGUMENT...]
set -eu
cd "$(dirname "$0")/.."

git ls-files --cached --others --exclude-standard -- '*/go.mod' | sort -u |
	while IFS= read -r file; do
		module=$(dirname "$file")
		if [ "$module" = tools ] || [ ! -f "$file" ]; then
			continue
		fi
		echo "modules: $module: $*" >&2
		(cd "$module" && "$@" </dev/null) || exit 1
	done
