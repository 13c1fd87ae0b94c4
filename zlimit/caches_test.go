package zlimit

import (
	"reflect"
	"strings"
	"testing"
)

// TestCachesAreHidden looks for instances of otter's types in the fields of a limiter, and in what they point to. The compiler
// writes the code of an instance again for each package that imports this one.
func TestCachesAreHidden(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var visit func(typ reflect.Type, path string)
	visit = func(typ reflect.Type, path string) {
		if seen[typ] {
			return
		}
		seen[typ] = true
		if strings.Contains(typ.PkgPath(), "otter") {
			t.Errorf("%s is a %v", path, typ)
			return
		}
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map, reflect.Chan:
			visit(typ.Elem(), path)
		case reflect.Struct:
			for f := range typ.Fields() {
				visit(f.Type, path+"."+f.Name)
			}
		}
	}
	visit(reflect.TypeFor[RateLimiter](), "RateLimiter")
	if len(seen) < 30 {
		t.Errorf("the fields have %d types, want those of the engine too", len(seen))
	}
}
