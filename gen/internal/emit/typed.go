package emit

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	. "github.com/dave/jennifer/jen"

	"github.com/zlimit/zlimit-go/internal/declaration"
	"github.com/zlimit/zlimit-go/internal/grammar"
)

// Typed returns a Go file of an application's package, generated from a declaration of the name given. The file has a
// type for the consumption of each resource, constants for the names, and the declared limits.
func Typed(d *declaration.Declaration, pkg, source string) ([]byte, error) {
	f := &file{NewFile(pkg)}
	f.HeaderComment("// " + headerBy("zlimitgen", source))
	names(f, d)
	for _, r := range d.Resources {
		consumption(f, r)
	}
	declared(f, d)
	text, err := f.render()
	if err != nil {
		return nil, fmt.Errorf("package %s: %w", pkg, err)
	}
	return text, nil
}

// names declares the constants.
func names(f *file, d *declaration.Declaration) {
	f.doc("The names of the resources.")
	f.Const().DefsFunc(func(g *Group) {
		for _, r := range d.Resources {
			g.Id(r.ResourceConst()).Op("=").Lit(r.Name)
		}
	})
	f.doc("The names of the limits.")
	f.Const().DefsFunc(func(g *Group) {
		for _, l := range d.LimitNames() {
			g.Id(l.LimitConst()).Op("=").Lit(l.Name)
		}
	})
}

// consumption declares the type for the consumption of a resource, with its methods.
func consumption(f *file, r *declaration.Resource) {
	about := ""
	if r.Doc != "" {
		about = " " + upper(sentence(r.Doc))
	}
	f.doc(fmt.Sprintf("%s is what is consumed of the resource %s.%s A limit of which it takes 0 is not asked.", r.Go, r.Name, about))
	f.Type().Id(r.Go).StructFunc(func(g *Group) {
		var list []member
		for _, l := range r.Limits {
			doc := l.Unit
			if l.Doc != "" {
				doc += ": " + l.Doc
			}
			list = append(list, member{l.Go, Int64(), doc})
		}
		members(g, list...)
	})
	f.doc("Resource returns the name of the resource.")
	f.Func().Params(Id(r.Go)).Id("Resource").Params().String().Block(Return(Id(r.ResourceConst())))
	amounts := Index().Qual(sdkPkg, "Amount")
	f.doc("AppendAmounts appends what is taken, for [zlimit.Consumption].")
	f.Func().Params(Id("c").Id(r.Go)).Id("AppendAmounts").Params(Id("to").Add(amounts)).Add(amounts).BlockFunc(func(g *Group) {
		for _, l := range r.Limits {
			amount := Qual(sdkPkg, "Amount").Values(field("Limit", Id(l.LimitConst())), field("Tokens", Id("c").Dot(l.Go)))
			g.If(Id("c").Dot(l.Go).Op("!=").Lit(0)).Block(Id("to").Op("=").Append(Id("to"), amount))
		}
		g.Return(Id("to"))
	})
}

// declared writes the function that returns the limits.
func declared(f *file, d *declaration.Declaration) {
	f.doc("Declared returns the limits as they are declared, for [zlimit.LimitService.Apply].")
	declarations := Index().Qual(sdkPkg, "Declaration")
	f.Func().Id("Declared").Params().Add(declarations).Block(Return(Add(declarations).Add(fields(resources(d)...))))
}

func resources(d *declaration.Declaration) (list []Code) {
	for _, r := range d.Resources {
		var limits []Code
		for _, l := range r.Limits {
			limits = append(limits, limit(l))
		}
		list = append(list, Values(
			field("Resource", Id(r.ResourceConst())),
			field("Limits", Index().Qual(sdkPkg, "Limit").Add(fields(limits...))),
		))
	}
	return list
}

// constructors are the functions that return limits of a period.
var constructors = map[time.Duration]string{
	time.Second: "PerSecond", time.Minute: "PerMinute", time.Hour: "PerHour", 24 * time.Hour: "PerDay",
}

// seconds writes a duration of whole seconds.
func seconds(d time.Duration) *Statement {
	return number(int64(d/time.Second)).Op("*").Qual("time", "Second")
}

func limit(l *declaration.Limit) Code {
	name, plain := Id(l.LimitConst()), l.Windows == "" && l.Floors == "" && l.Mode == ""
	switch constructor := constructors[l.RefillPeriod]; {
	case plain && l.Term != 0:
		return Qual(sdkPkg, "Slots").Call(name, number(l.Capacity), Qual(sdkPkg, "Term").Call(seconds(l.Term)))
	case plain && l.Resets != "":
		quota := Qual(sdkPkg, "Cron").Call(name, number(l.Capacity), Lit(l.Resets), Lit(l.Zone))
		if l.Carry != 0 {
			quota.Dot("CarryOver").Call(number(l.Carry))
		}
		return quota
	case plain && l.Session == grammar.MaxSession:
		return Qual(sdkPkg, "Prepaid").Call(name, number(l.Capacity))
	case plain && l.Session != 0:
		return Qual(sdkPkg, "Session").Call(name, number(l.Capacity), seconds(l.Session))
	case plain && constructor != "":
		args := []Code{name, number(l.RefillAmount)}
		if l.Capacity != l.RefillAmount {
			args = append(args, Qual(sdkPkg, "Burst").Call(number(l.Capacity)))
		}
		return Qual(sdkPkg, constructor).Call(args...)
	}
	fields := []Code{field("Name", name), field("Capacity", number(l.Capacity))}
	switch {
	case l.Resets != "":
		if fields = append(fields, field("Resets", Lit(l.Resets))); l.Carry != 0 {
			fields = append(fields, field("Carry", number(l.Carry)))
		}
	case l.Session != 0:
		fields = append(fields, field("Session", seconds(l.Session)))
	default:
		fields = append(fields, field("RefillAmount", number(l.RefillAmount)), field("RefillPeriod", seconds(l.RefillPeriod)))
	}
	for _, text := range []struct{ name, value string }{{"Zone", l.Zone}, {"Windows", l.Windows}, {"Floors", l.Floors}, {"Mode", l.Mode}} {
		if text.value != "" {
			fields = append(fields, field(text.name, Lit(text.value)))
		}
	}
	return Values(fields...)
}

// number writes a positive number, the digits of a long one in groups.
func number(n int64) *Statement {
	digits := strconv.FormatInt(n, 10)
	if len(digits) < 5 {
		return Op(digits)
	}
	var groups []string
	for ; len(digits) > 3; digits = digits[:len(digits)-3] {
		groups = append([]string{digits[len(digits)-3:]}, groups...)
	}
	return Op(strings.Join(append([]string{digits}, groups...), "_"))
}
