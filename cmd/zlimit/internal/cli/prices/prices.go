// Package prices has the command that looks at price lists: prices check.
package prices

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/price"
)

// Command returns the command prices.
func Command(sh *shell.Shell) *cobra.Command {
	return shell.Group("check", &cobra.Command{
		Use:     "prices",
		Short:   "Check price lists of models",
		Example: `  zlimit prices check model_prices_and_context_window.json gpt-4o`,
	}, checkCommand(sh))
}

func checkCommand(sh *shell.Shell) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE [MODEL]",
		Short: "Show what a price list means, for all models or for one",
		Long: `Check reads LiteLLM's price list, model_prices_and_context_window.json, as a
program does by price.ReadLiteLLM. It shows how much of the list is read, and
what is left out, by member and reason. -o json has each model that is left out.

With a MODEL it shows what its calls cost: dollars for a million units, by the
length of the prompt, the class of service and the hour. A class without a price
of its own shows that of its wider class. It needs no store.`,
		Example: `  zlimit prices check model_prices_and_context_window.json
  zlimit prices check model_prices_and_context_window.json gpt-4o`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := shell.Takes("FILE")(cmd, args[:min(len(args), 1)]); err != nil {
				return err
			}
			if len(args) > 2 {
				return shell.Usagef("prices check: one argument too many, %q; see %s --help", args[2], cmd.CommandPath())
			}
			list, err := readList(args[0])
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return printList(sh, args[0], list)
			}
			return printModel(sh, list, args[1])
		},
	}
}

func readList(path string) (*price.List, error) {
	f, err := os.Open(path) //nolint:gosec // the file that the user names
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	list, err := price.ReadLiteLLM(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}

// A leftOut is what is left out of a list for one reason.
type leftOut struct {
	Member  string `json:"member"` // "" for whole entries
	Reason  string `json:"reason"`
	Times   int    `json:"times"`
	Example string `json:"example"`
}

// reasons groups what is left out: whole entries first, and then members by name.
func reasons(skipped []price.Skipped) []leftOut {
	found := map[[2]string]*leftOut{}
	for _, s := range skipped {
		key := [2]string{s.Member, s.Reason}
		if found[key] == nil {
			found[key] = &leftOut{Member: s.Member, Reason: s.Reason, Example: s.Model}
		}
		found[key].Times++
	}
	all := make([]leftOut, 0, len(found))
	for _, l := range found {
		all = append(all, *l)
	}
	slices.SortFunc(all, func(a, b leftOut) int {
		return cmp.Or(cmp.Compare(a.Member, b.Member), cmp.Compare(a.Reason, b.Reason))
	})
	return all
}

func printList(sh *shell.Shell, path string, list *price.List) error {
	type result struct {
		Entries int             `json:"entries"`
		Models  int             `json:"models"`
		Members int             `json:"members"`
		Skipped []price.Skipped `json:"skipped"`
	}
	value := result{list.Entries, len(list.Models), list.Members, list.Skipped}
	if value.Skipped == nil {
		value.Skipped = []price.Skipped{}
	}
	return sh.Print(value, func(p *show.Page) {
		p.Linef("%s: entries %s, models with prices for tokens %s, members read %s", path,
			show.Grouped(int64(list.Entries)), show.Grouped(int64(len(list.Models))), show.Grouped(int64(list.Members)))
		all := reasons(list.Skipped)
		if len(all) == 0 {
			p.Linef("nothing is left out")
			return
		}
		var rows [][]string
		for _, l := range all {
			rows = append(rows, []string{show.Grouped(int64(l.Times)), cmp.Or(l.Member, "(whole entries)"), l.Reason, l.Example})
		}
		p.Linef("")
		p.Table([]string{"left out>", "member", "reason", "such as"}, rows)
	})
}

// A variant is a kind of call of a model.
type variant struct {
	title string
	call  price.Call
	above int64
}

// variants returns the kinds of calls whose prices differ, except for speeds and regions.
func variants(name string, m *price.Model) (all []variant) {
	above := map[int64]bool{0: true}
	tiers := [][]price.Tier{m.Long}
	for _, s := range m.Services {
		tiers = append(tiers, s.Long)
	}
	for _, h := range m.Hours {
		tiers = append(tiers, h.Long)
	}
	for _, long := range tiers {
		for _, tier := range long {
			above[tier.Above] = true
		}
	}
	lengths := slices.Sorted(maps.Keys(above))
	add := func(title string, call price.Call) {
		for _, n := range lengths {
			parts := []string{title}
			if n > 0 {
				parts = append(parts, "above "+show.Grouped(n))
			}
			all = append(all, variant{strings.TrimSpace(strings.Join(parts, " ")), call, n})
		}
	}
	add("usual", price.Call{Model: name})
	for _, service := range slices.Sorted(maps.Keys(m.Services)) {
		add(service, price.Call{Model: name, Service: service})
	}
	for i, h := range m.Hours {
		if at, ok := within(&h); ok {
			add(fmt.Sprintf("hours %d", i+1), price.Call{Model: name, Time: at})
		}
	}
	return all
}

// within returns a time within hours.
func within(h *price.Hours) (at time.Time, ok bool) {
	week := time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)
	for minute := range 7 * 24 * 60 {
		if at = week.Add(time.Duration(minute) * time.Minute); h.Have(at) {
			return at, true
		}
	}
	return at, false
}

func printModel(sh *shell.Shell, list *price.List, name string) error {
	var skipped []price.Skipped
	for _, s := range list.Skipped {
		if s.Model == name {
			skipped = append(skipped, s)
		}
	}
	m, ok := list.Models[name]
	if !ok && len(skipped) == 0 {
		return shell.Usagef("prices check: the list has no entry %q%s", name, near(list, name))
	}
	if !ok {
		return fmt.Errorf("no call can be priced: %v", skipped[0])
	}
	table, err := price.NewTable(map[string]price.Model{name: m})
	if err != nil {
		return err
	}
	type rate struct {
		Calls   string `json:"calls"`
		Service string `json:"service,omitempty"`
		Above   int64  `json:"above,omitempty"`
		Class   string `json:"class"`
		Dollars string `json:"dollars_per_million"`
	}
	type result struct {
		Model   string            `json:"model"`
		Rates   []rate            `json:"rates"`
		Speeds  map[string]string `json:"speeds,omitempty"`
		Regions map[string]string `json:"regions,omitempty"`
		Hours   []string          `json:"hours,omitempty"`
		Skipped []price.Skipped   `json:"skipped,omitempty"`
	}
	value := result{Model: name, Rates: []rate{}, Speeds: factors(m.Speeds), Regions: factors(m.Regions), Skipped: skipped}
	kinds := variants(name, &m)
	header, rows := []string{"class"}, [][]string{}
	for _, k := range kinds {
		header = append(header, k.title+">")
	}
	for _, class := range price.Classes() {
		row, some := []string{class.String()}, false
		for _, k := range kinds {
			dollars, err := table.Rate(k.call, k.above+1, class)
			if err != nil {
				return err
			}
			each, text := decimal(dollars), decimal(dollars.Mul(dollars, big.NewRat(1_000_000, 1)))
			some = some || dollars.Sign() > 0
			value.Rates = append(value.Rates, rate{k.title, k.call.Service, k.above, class.String(), text})
			if class == price.Request || class == price.Search {
				text = each + " each"
			}
			row = append(row, "$"+text)
		}
		if some || class == price.Input || class == price.Output {
			rows = append(rows, row)
		}
	}
	for i, h := range m.Hours {
		value.Hours = append(value.Hours, fmt.Sprintf("hours %d: %s", i+1, describe(h.Windows)))
	}
	return sh.Print(value, func(p *show.Page) {
		p.Linef("%s: dollars for a million tokens", name)
		p.Table(header, rows)
		for _, line := range value.Hours {
			p.Linef("%s", line)
		}
		for _, of := range []struct {
			kind    string
			factors map[string]string
		}{{"speed", value.Speeds}, {"region", value.Regions}} {
			for _, name := range slices.Sorted(maps.Keys(of.factors)) {
				p.Linef("%s %s: tokens cost %s times as much", of.kind, strings.Replace(name, price.AnyRegion, "(any other)", 1), of.factors[name])
			}
		}
		for _, s := range skipped {
			p.Linef("left out: %s: %s", s.Member, s.Reason)
		}
	})
}

func factors(of map[string]*big.Rat) map[string]string {
	all := map[string]string{}
	for name, factor := range of {
		all[name] = decimal(factor)
	}
	return all
}

// decimal returns a number of up to 18 decimal places without trailing zeros.
func decimal(r *big.Rat) string {
	return strings.TrimSuffix(strings.TrimRight(r.FloatString(18), "0"), ".")
}

// describe returns hours as text.
func describe(windows []price.Window) string {
	var parts []string
	for _, w := range windows {
		var days []string
		for _, d := range w.Weekdays {
			days = append(days, d.String()[:3])
		}
		text := clock(w.From) + " to " + clock(w.Until) + " UTC"
		if w.From == w.Until {
			text = "all day"
		}
		if len(days) > 0 {
			text += " on " + strings.Join(days, " ")
			if w.Zone != nil && w.Zone != time.UTC {
				text += " of " + w.Zone.String()
			}
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

func clock(d time.Duration) string {
	return fmt.Sprintf("%02d:%02d", int(d.Hours()), int(d.Minutes())%60)
}

// near names models whose names contain the name, or have its last part.
func near(list *price.List, name string) string {
	var found []string
	_, last, _ := strings.Cut("/"+name, "/")
	for other := range list.Models {
		if strings.Contains(strings.ToLower(other), strings.ToLower(last)) {
			found = append(found, other)
		}
	}
	if len(found) == 0 {
		return ""
	}
	slices.SortFunc(found, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	return "; it has " + strings.Join(found[:min(len(found), 3)], ", ")
}
