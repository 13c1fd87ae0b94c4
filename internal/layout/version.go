package layout

import (
	"slices"
	"strconv"
	"strings"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Migrating is the oldest client of a table closed by a migration. No client has this version.
const Migrating = "1000000.0.0"

// Admits reports whether a client of a version, which reads and writes a layout, may use the table. It may when the
// layout of the table has the same major version, and the table asks for no later client.
func (it *Version) Admits(schema, client string) bool {
	return SameMajor(it.SchemaVersion, schema) && reaches(client, it.ClientMinVersion)
}

// SameVersions reports whether two records say the same of a table.
func SameVersions(a, b *Version) bool {
	return a.SchemaVersion == b.SchemaVersion && a.ClientMinVersion == b.ClientMinVersion && a.LambdaVersion == b.LambdaVersion &&
		a.ChildrenFrom == b.ChildrenFrom
}

// Later returns the later one of two versions; b where they are the same.
func Later(a, b string) string {
	if b != "" && reaches(b, a) {
		return b
	}
	return a
}

// kinds are the parts of levels that older clients do not obey. Each is an attribute, or a field of each limit of a
// family, with the version of the first client that obeys it, or such values of it. A writer of one asks the table for that client before.
var kinds = []struct {
	attribute expr.Path
	is        func(expr.Value) bool // nil for any value
	since     string
}{
	{expr.Attr(AttrResourceConfigWithin), nil, "0.17.1"},
	{AttrConfigLimitWindows, nil, "0.14.0"},
	{AttrConfigLimitTerm, nil, "0.17.1"}, // slots
	{AttrConfigSessionSession, nil, "0.15.0"},
	{AttrConfigLimitCarry, nil, "0.17.1"}, // rollover
	{AttrConfigLimitSoft, nil, "0.17.0"},
	{AttrConfigSessionSoft, nil, "0.17.0"},
	{expr.Attr(AttrResourceConfigCascade), nil, "0.16.0"},
	{expr.Attr(AttrEntityConfigCascade), nil, "0.16.0"},
	{expr.Attr(AttrResourceConfigSwitch), isBypass, "0.17.0"},
	{expr.Attr(AttrEntityConfigSwitch), isBypass, "0.17.0"},
	{AttrConfigLimitFloors, func(v expr.Value) bool { return v.Kind() == expr.KindS && strings.Contains(v.Text(), "+") }, "0.17.1"}, // guaranteed shares
}

func isBypass(v expr.Value) bool { return v.Kind() == expr.KindS && v.Text() == Bypass }

// ObeysMoves is the version of the first client that charges the parent of the moment of an entity that was moved.
const ObeysMoves = "0.17.0"

// Bypass is the switch of a level whose requests are counted alone, as items have it.
const Bypass = "bypass"

// OldestClient returns the version of the oldest client that obeys an item, "" where every client of the layout does. The attributes
// need not have the key.
func OldestClient(key store.Key, item expr.Item) (oldest string) {
	_, system := ParseSystemConfigKey(key)
	_, resource := ParseResourceConfigKey(key)
	_, entity := ParseEntityConfigKey(key)
	if !system && !resource && !entity {
		return ""
	}
	for _, a := range item {
		for _, k := range kinds {
			_, isOf := k.attribute.Cut(a.Name)
			if (isOf || a.Name == k.attribute.Name("")) && (k.is == nil || k.is(a.Value)) {
				oldest = Later(oldest, k.since)
			}
		}
	}
	return oldest
}

// A versionNumber is a version number as its parts: major, minor, patch. Text after a hyphen or a plus does not count.
type versionNumber [3]uint64

// parseVersion returns the version that a text stands for; false when it is none.
func parseVersion(text string) (v versionNumber, ok bool) {
	text = strings.TrimPrefix(text, "v")
	if end := strings.IndexAny(text, "-+"); end >= 0 {
		text = text[:end]
	}
	parts := strings.Split(text, ".")
	if len(parts) > len(v) {
		return v, false
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

// SameMajor reports whether two versions are compatible.
func SameMajor(a, b string) bool {
	first, ok := parseVersion(a)
	second, okay := parseVersion(b)
	return ok && okay && first[0] == second[0]
}

// reaches reports whether a version is at least another one, which may be "" for any.
func reaches(have, least string) bool {
	if least == "" {
		return true
	}
	first, ok := parseVersion(have)
	second, okay := parseVersion(least)
	return ok && okay && slices.Compare(first[:], second[:]) >= 0
}
