package price

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// costs are the members for rates.
var costs = map[string]Class{
	"input_cost_per_token":                      Input,
	"output_cost_per_token":                     Output,
	"output_cost_per_reasoning_token":           Reasoning,
	"cache_read_input_token_cost":               CacheRead,
	"cache_creation_input_token_cost":           CacheWrite,
	"cache_creation_input_token_cost_above_1hr": CacheWriteHour,
	"input_cost_per_audio_token":                AudioInput,
	"output_cost_per_audio_token":               AudioOutput,
	"cache_read_input_audio_token_cost":         AudioCacheRead,
	"input_cost_per_image_token":                ImageInput,
	"output_cost_per_image_token":               ImageOutput,
	"input_cost_per_request":                    Request,

	"cache_read_input_image_token_cost":          ImageCacheRead,
	"cache_creation_input_token_cost_above_12hr": CacheWrite12Hours,
	"input_cost_per_video_token":                 VideoInput,
	"output_cost_per_video_token":                VideoOutput,
}

// aliases are further names of members, which hold where the first one is not there.
var aliases = map[string]string{"input_cost_per_token_cache_hit": "cache_read_input_token_cost"}

// services are the classes of service by the ends of members.
var services = map[string]string{
	"batches": "batch", "flex": "flex", "priority": "priority", "ultrafast": "ultrafast", "balanced": "balanced", "decisions": "decisions",
}

// member takes the name of a rate apart: what it is for, from how many tokens on, and in which service, which may also come before the length.
var member = regexp.MustCompile(`^(.+?)(?:_` + serviceEnds + `)?(?:_above_(\d{1,9})([kKmM])?_tokens)?(?:_` + serviceEnds + `)?$`)

const serviceEnds = `(batches|flex|priority|ultrafast|balanced|decisions)`

// regions are the members for factors of regions.
var regions = map[string]string{
	"regional_processing_uplift_multiplier_us": "us",
	"regional_processing_uplift_multiplier_eu": "eu",
	"fedramp_uplift_multiplier":                "fedramp",
	"regional_endpoint_uplift_multiplier":      AnyRegion,
}

func isNull(value json.RawMessage) bool { return string(value) == "null" }

// isPrice reports whether the name of a member is that of a price.
func isPrice(name string) bool {
	for _, part := range []string{"cost", "price", "pricing", "multiplier", "uplift", "surcharge", "discount", "fee_"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// noPrice is the result of take for a member that says nothing of prices.
const noPrice = "no price"

// take takes over a member of an entry. It returns why it does not, and noPrice for one that is no price.
func (e *entry) take(name string, value json.RawMessage) (reason string) {
	switch name {
	case "mode":
		_ = json.Unmarshal(value, &e.mode) // another value than a string is no mode
		return noPrice
	case "alias_of":
		_ = json.Unmarshal(value, &e.alias)
		return noPrice
	case "search_context_cost_per_query":
		return e.takeSearches(value)
	case "tiered_pricing":
		return e.takeTiers(value)
	case "off_peak_pricing":
		return e.takeHours(value)
	case "provider_specific_entry":
		return e.takeFactors(value)
	}
	if region, ok := regions[name]; ok {
		return takeFactor(e.regions, region, value)
	}
	if base, ok := strings.CutPrefix(name, "regional_processing_uplift_multiplier_"); ok {
		return takeFactor(e.regions, base, value)
	}
	if first, ok := aliases[name]; ok {
		class := costs[first]
		if e.rates[rateKey{class: class}] != nil { // the first name sorts before, and holds
			return ""
		}
		return e.takeRate(rateKey{class: class}, value)
	}
	parts := member.FindStringSubmatch(name)
	if parts == nil { // an empty name, or one of several lines
		return noPrice
	}
	if parts[2] != "" && parts[5] != "" {
		return "has two classes of service"
	}
	key := rateKey{service: services[parts[2]+parts[5]]}
	class, ok := costs[parts[1]]
	if !ok && isPrice(name) {
		if rate, err := parseRate(value); e.others == "" && (err != nil || rate.Sign() > 0) {
			e.others = name
		}
		return "is not known"
	}
	if !ok {
		return noPrice
	}
	key.class = class
	if parts[3] != "" {
		key.above, _ = strconv.ParseInt(parts[3], 10, 64) // digits
		key.above *= map[string]int64{"": 1, "k": 1_000, "m": 1_000_000}[strings.ToLower(parts[4])]
		if e.inclusive {
			key.above--
		}
		if key.above <= 0 {
			return "the length of the prompt must be above 0"
		}
	}
	return e.takeRate(key, value)
}

// takeRate takes over a rate.
func (e *entry) takeRate(key rateKey, value json.RawMessage) (reason string) {
	rate, err := parseRate(value)
	if err != nil {
		e.odd[key] = true
		return err.Error()
	}
	e.rates[key] = rate
	if key.service != "" {
		e.services[key.service] = true
	}
	return ""
}

// takeSearches takes the highest of the prices for searches.
func (e *entry) takeSearches(value json.RawMessage) (reason string) {
	var sizes map[string]json.RawMessage
	if err := json.Unmarshal(value, &sizes); err != nil {
		return "must be an object of prices"
	}
	var highest *big.Rat
	for _, size := range slices.Sorted(maps.Keys(sizes)) {
		if isNull(sizes[size]) {
			continue
		}
		rate, err := parseRate(sizes[size])
		if err != nil {
			return size + ": " + err.Error()
		}
		if highest == nil || rate.Cmp(highest) > 0 {
			highest = rate
		}
	}
	if highest == nil {
		return "has no price"
	}
	e.rates[rateKey{class: Search}] = highest
	return ""
}

// takeTiers takes the rates of ranges of lengths. All of them are taken, or none.
func (e *entry) takeTiers(value json.RawMessage) (reason string) {
	var ranges []map[string]json.RawMessage
	if err := json.Unmarshal(value, &ranges); err != nil || len(ranges) == 0 {
		return "must be an array of ranges"
	}
	var tiers []Tier
	for i, r := range ranges {
		of := fmt.Sprintf("range %d: ", i+1)
		var bounds []json.RawMessage
		if err := json.Unmarshal(r["range"], &bounds); err != nil || len(bounds) != 2 {
			return of + "must have the bounds of its length"
		}
		above, err := parseRat(bounds[0])
		if err != nil || !above.IsInt() || !above.Num().IsInt64() || above.Sign() < 0 {
			return fmt.Sprintf("%s%s must be a number of tokens", of, bounds[0])
		}
		tier := Tier{above.Num().Int64(), Rates{}}
		for _, name := range slices.Sorted(maps.Keys(r)) {
			class, ok := costs[name]
			switch {
			case name == "range", isNull(r[name]):
			case !ok && isPrice(name):
				return of + name + " is not known"
			case ok:
				if tier.Rates[class], err = parseRate(r[name]); err != nil {
					return of + name + ": " + err.Error()
				}
			}
		}
		if tier.Rates[Input] == nil {
			return of + "has no price for tokens of input"
		}
		if slices.ContainsFunc(tiers, func(t Tier) bool { return t.Above == tier.Above }) {
			return fmt.Sprintf("%sbegins above %d tokens, as another one does", of, tier.Above)
		}
		tiers = append(tiers, tier)
	}
	slices.SortFunc(tiers, func(a, b Tier) int { return int(min(1, max(-1, a.Above-b.Above))) })
	if tiers[0].Above != 0 {
		return fmt.Sprintf("has no range for prompts of up to %d tokens", tiers[0].Above)
	}
	e.tiered = tiers
	return ""
}

// offPeak is off_peak_pricing, without its rates.
type offPeak struct {
	Hours   json.RawMessage `json:"hours_utc"`
	Zone    string          `json:"weekday_timezone"`
	Windows []struct {
		Hours    json.RawMessage   `json:"hours_utc"`
		Weekdays []json.RawMessage `json:"weekdays"`
	} `json:"windows"`
}

// takeHours takes the rates of some hours of the week.
func (e *entry) takeHours(value json.RawMessage) (reason string) {
	var block offPeak
	var all map[string]json.RawMessage
	if err := json.Unmarshal(value, &block); err != nil {
		return "must have windows of hours_utc and weekdays"
	}
	_ = json.Unmarshal(value, &all) // an object
	zone := time.UTC
	if block.Zone != "" {
		var err error
		if zone, err = time.LoadLocation(block.Zone); err != nil {
			return fmt.Sprintf("weekday_timezone %q is not known", block.Zone)
		}
	}
	windows, err := parseHours(block.Hours, nil, zone)
	if err != nil {
		return err.Error()
	}
	for _, w := range block.Windows {
		var weekdays []time.Weekday
		for _, text := range w.Weekdays {
			day, err := parseWeekday(text)
			if err != nil {
				return err.Error()
			}
			weekdays = append(weekdays, day)
		}
		if w.Weekdays != nil && len(weekdays) == 0 {
			continue // on no day
		}
		more, err := parseHours(w.Hours, weekdays, zone)
		if err != nil {
			return err.Error()
		}
		windows = append(windows, more...)
	}
	if len(windows) == 0 {
		return "has no hours"
	}
	rates := Rates{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		class, ok := costs[name]
		switch {
		case isNull(all[name]):
		case !ok && isPrice(name):
			return name + " is not known"
		case ok:
			rate, err := parseRate(all[name])
			if err != nil {
				return name + ": " + err.Error()
			}
			rates[class] = rate
		}
	}
	e.hours, e.hourly = windows, rates
	return ""
}

// parseHours parses a text such as 16:30-00:30, or several of them.
func parseHours(value json.RawMessage, weekdays []time.Weekday, zone *time.Location) (windows []Window, err error) {
	if len(value) == 0 || isNull(value) {
		return nil, nil
	}
	var texts []string
	var one string
	if json.Unmarshal(value, &one) == nil {
		texts = []string{one}
	} else if err := json.Unmarshal(value, &texts); err != nil {
		return nil, fmt.Errorf("hours_utc must be texts such as 16:30-00:30")
	}
	for _, text := range texts {
		from, until, ok := strings.Cut(text, "-")
		begin, err := parseHour(from)
		end, bad := parseHour(until)
		if !ok || err != nil || bad != nil || begin == day {
			return nil, fmt.Errorf("hours_utc %q must be such as 16:30-00:30", text)
		}
		windows = append(windows, Window{Weekdays: weekdays, Zone: zone, From: begin, Until: end})
	}
	return windows, nil
}

func parseHour(text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	if text == "24:00" {
		return day, nil
	}
	t, err := time.Parse("15:04", text)
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute, err
}

// parseWeekday parses a day of the week: 1 to 7 from Monday on, or its name.
func parseWeekday(value json.RawMessage) (time.Weekday, error) {
	var n int
	if json.Unmarshal(value, &n) == nil && n >= 1 && n <= 7 {
		return time.Weekday(n % 7), nil
	}
	var name string
	if json.Unmarshal(value, &name) == nil {
		name = strings.ToLower(strings.TrimSpace(name))
		for d := time.Sunday; d <= time.Saturday; d++ {
			if full := strings.ToLower(d.String()); len(name) >= 3 && strings.HasPrefix(full, name) {
				return d, nil
			}
		}
	}
	return 0, fmt.Errorf("weekday %s must be from 1 to 7, or a name", value)
}

// takeFactors takes the factors of speeds and regions. Other members are flags.
func (e *entry) takeFactors(value json.RawMessage) (reason string) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(value, &all); err != nil {
		return "must be an object"
	}
	taken, unknown := false, []string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		rate, err := parseRat(all[name])
		switch {
		case name == "fast":
			reason = takeFactor(e.speeds, name, all[name])
			taken = true
		case isRegion(name):
			reason = takeFactor(e.regions, name, all[name])
			taken = true
		case err == nil && rate.Cmp(big.NewRat(1, 1)) != 0: // a flag has 1
			unknown = append(unknown, name)
		}
		if reason != "" {
			return name + ": " + reason
		}
	}
	switch {
	case len(unknown) > 0:
		return "not known as a speed or region: " + strings.Join(unknown, ", ")
	case !taken:
		return noPrice
	}
	return ""
}

// isRegion reports whether a name is that of a region: two letters, as in us and eu.
func isRegion(name string) bool {
	return len(name) == 2 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz") == ""
}

func takeFactor(to map[string]*big.Rat, name string, value json.RawMessage) (reason string) {
	factor, err := parseRat(value)
	switch {
	case err != nil:
		return err.Error()
	case factor.Sign() <= 0 || factor.Cmp(big.NewRat(1000, 1)) >= 0:
		return fmt.Sprintf("%s must be a factor above 0, and below 1000", value)
	}
	to[name] = factor
	return ""
}
