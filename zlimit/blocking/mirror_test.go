package blocking

import (
	"context"
	"reflect"
	"testing"

	"github.com/zlimit/zlimit-go/zlimit"
)

// own are the methods that have no counterpart in package zlimit.
var own = map[string]bool{"RateLimiter.Within": true, "Lease.Close": true}

// A mirror knows which type stands for which of package zlimit.
type mirror map[reflect.Type]reflect.Type

// TestMirrorsEveryMethod compares the method sets of the facade and package zlimit. Each method has one with the same
// parameters and results except contexts, each list has two, and the facade has nothing else.
func TestMirrorsEveryMethod(t *testing.T) {
	m := mirror{
		reflect.TypeFor[*zlimit.RateLimiter](): reflect.TypeFor[*RateLimiter](),
		reflect.TypeFor[*zlimit.Lease]():       reflect.TypeFor[*Lease](),
		reflect.TypeFor[*zlimit.Reservation](): reflect.TypeFor[*Reservation](),
		reflect.TypeFor[*zlimit.Leases]():      reflect.TypeFor[*Leases](),
		reflect.TypeFor[*zlimit.Scoped]():      reflect.TypeFor[*Scoped](),
		reflect.TypeFor[*zlimit.ManagedRun]():  reflect.TypeFor[*ManagedRun](),
	}
	core, facade := reflect.TypeFor[zlimit.RateLimiter](), reflect.TypeFor[RateLimiter]()
	for i := range core.NumField() {
		service := core.Field(i)
		if !service.IsExported() {
			continue
		}
		f, ok := facade.FieldByName(service.Name)
		if !ok {
			t.Errorf("RateLimiter has no field %s", service.Name)
			continue
		}
		m[service.Type] = f.Type
	}
	if len(m) < 8 {
		t.Fatalf("%d types are mirrored, want the limiter, the lease, the run and all services", len(m))
	}
	for core, facade := range m {
		m.compare(t, core, facade)
	}
}

func (m mirror) compare(t *testing.T, core, facade reflect.Type) {
	name := core.Elem().Name()
	if facade.Elem().Name() != name {
		t.Errorf("%v stands for %v", facade, core)
	}
	wanted := map[string]reflect.Type{}
	for i := range core.NumMethod() {
		method := core.Method(i)
		in, out, variadic := signature(method.Type)
		if bounded := len(in) > 1 && in[1] == reflect.TypeFor[context.Context](); bounded {
			in = append(in[:1], in[2:]...)
			if len(out) == 1 && out[0].PkgPath() == "iter" {
				wanted[method.Name+"Seq"] = reflect.FuncOf(m.all(in), out, variadic)
				element := out[0].In(0).In(0)
				out = []reflect.Type{reflect.SliceOf(element), reflect.TypeFor[error]()}
			}
		}
		wanted[method.Name] = reflect.FuncOf(m.all(in), m.all(out), variadic)
	}
	for method, want := range wanted {
		got, ok := facade.MethodByName(method)
		if !ok {
			t.Errorf("%s has no method %s", name, method)
		} else if got.Type != want {
			t.Errorf("%s.%s is a %v, want a %v", name, method, got.Type, want)
		}
	}
	for i := range facade.NumMethod() {
		method := facade.Method(i).Name
		if _, ok := wanted[method]; !ok && !own[name+"."+method] {
			t.Errorf("%s.%s has no counterpart in package zlimit", name, method)
		}
	}
}

// all returns what stands for types of package zlimit; for a callback one without a context.
func (m mirror) all(list []reflect.Type) []reflect.Type {
	mirrored := make([]reflect.Type, len(list))
	for i, t := range list {
		mirrored[i] = t
		if facade, ok := m[t]; ok {
			mirrored[i] = facade
		} else if t.Kind() == reflect.Func && t.NumIn() > 0 && t.In(0) == reflect.TypeFor[context.Context]() {
			in, out, variadic := signature(t)
			mirrored[i] = reflect.FuncOf(m.all(in[1:]), m.all(out), variadic)
		}
	}
	return mirrored
}

func signature(t reflect.Type) (in, out []reflect.Type, variadic bool) {
	for i := range t.NumIn() {
		in = append(in, t.In(i))
	}
	for i := range t.NumOut() {
		out = append(out, t.Out(i))
	}
	return in, out, t.IsVariadic()
}
