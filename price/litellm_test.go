package price_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/price"
)

func read(t *testing.T, text string) *price.List {
	t.Helper()
	return check.Call(price.ReadLiteLLM(strings.NewReader(text))).Must(t, "price.ReadLiteLLM()")
}

// madeUp has a model for each kind of member, with made-up prices.
const madeUp = `{
	"sample_spec": {"input_cost_per_token": "a number", "mode": "one of"},
	"chat": {
		"input_cost_per_token": 2.5e-06, "output_cost_per_token": 1e-05, "max_tokens": 4096, "litellm_provider": "x",
		"cache_read_input_token_cost": 1.25e-06, "cache_creation_input_token_cost_above_1hr": 7e-6, "output_cost_per_reasoning_token": null,
		"input_cost_per_token_above_200k_tokens": 5E-06, "input_cost_per_token_batches": 1.25e-06, "output_cost_per_token_priority": 0.00002,
		"cache_creation_input_token_cost_above_1hr_above_200k_tokens": 1.4e-05,
		"input_cost_per_token_priority": 4e-06, "input_cost_per_token_above_200k_tokens_priority": 9e-06,
		"search_context_cost_per_query": {"search_context_size_low": 0.01, "search_context_size_medium": null, "search_context_size_high": 0.03},
		"regional_processing_uplift_multiplier_eu": 1.1, "provider_specific_entry": {"fast": 2, "us": 1.2, "flag": 1},
		"supports_vision": true
	},
	"text": {"input_cost_per_token": "4e-07", "output_cost_per_token": 4.2000000000000006e-08},
	"noise": {"input_cost_per_token": 0.30000000000000004e-06, "output_cost_per_token": 9.499999999999999e-07, "cache_read_input_token_cost": 2.9999900000000002e-06,
		"cache_creation_input_token_cost": 0.00000100000000000000012345678901234567890123456789},
	"tiers": {"mode": "chat", "tiered_pricing": [
		{"range": [32000.0, 128000.0], "input_cost_per_token": 2e-06, "output_cost_per_token": 5e-06},
		{"range": [0, 32000.0], "input_cost_per_token": 1e-06, "output_cost_per_token": 3e-06, "cache_read_input_token_cost": 1e-07, "cache_creation_input_token_cost": null}
	]},
	"hours": {"input_cost_per_token": 3e-07, "output_cost_per_token": 1.2e-06, "input_cost_per_token_above_128k_tokens": 6e-07,
		"off_peak_pricing": {"input_cost_per_token": 1.5e-07, "weekday_timezone": "Asia/Shanghai", "windows": [
			{"hours_utc": ["22:30-01:00", "04:00-06:00"], "weekdays": [1, "tue", "Wednesday", 4, 5]},
			{"hours_utc": "00:00-00:00", "weekdays": [6, 7]}
		]}},
	"grok": {"litellm_provider": "xai", "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06, "input_cost_per_token_above_128k_tokens": 2e-06},
	"regional": {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06, "regional_endpoint_uplift_multiplier": 1.1},
	"hit": {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06, "input_cost_per_token_cache_hit": 1e-07},
	"again": {"alias_of": "alias"}, "alias": {"alias_of": "hit"},
	"swapped": {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06, "input_cost_per_token_priority_above_200K_tokens": 9e-06},
	"embedding": {"input_cost_per_token": 1e-07, "mode": "embedding"},
	"pictures": {"input_cost_per_token": 1e-07, "output_cost_per_image_token": 3e-05, "mode": "image_generation"},
	"media": {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06, "cache_read_input_token_cost": 1e-07, "cache_read_input_image_token_cost": 2e-07,
		"input_cost_per_video_token": 3e-06, "output_cost_per_video_token": 4e-06, "input_cost_per_token_batches": 5e-07, "input_cost_per_video_token_batches": 1e-06},
	"hourly": {"input_cost_per_token": 1e-06, "output_cost_per_token": 5e-06, "input_cost_per_token_above_200k_tokens": 2e-06, "cache_read_input_token_cost": 1e-07,
		"cache_creation_input_token_cost": 1.25e-06, "cache_creation_input_token_cost_above_1hr": 2e-06, "cache_creation_input_token_cost_above_200k_tokens": 2.5e-06,
		"input_cost_per_token_batches": 5e-07, "cache_read_input_audio_token_cost": 3e-07, "output_cost_per_reasoning_token": 6e-06, "output_cost_per_token_above_200k_tokens": 7e-06},
	"caches": {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06, "cache_creation_input_token_cost": 3e-06, "cache_creation_input_token_cost_above_12hr": 4e-06,
		"cache_creation_input_token_cost_above_272k_tokens": 6e-06, "cache_creation_input_token_cost_above_12hr_above_272k_tokens": 8e-06,
		"cache_creation_input_token_cost_above_12hr_above_272k_tokens_flex": 5e-06, "cache_creation_input_token_cost_above_12hr_flex": 2e-06}
}`

// TestReadLiteLLM reads a list in LiteLLM's form.
func TestReadLiteLLM(t *testing.T) {
	list := read(t, madeUp)
	if len(list.Skipped) > 0 || len(list.Models) != 16 || list.Entries != 16 {
		t.Errorf("ReadLiteLLM() = %d models of %d entries, skipped %v, want all", len(list.Models), list.Entries, list.Skipped)
	}
	prices := check.Call(price.NewTable(list.Models)).Must(t, "price.NewTable()")
	friday := time.Date(2026, 2, 20, 0, 0, 0, 0, time.UTC)
	at := func(day, hour, minute int) time.Time {
		return friday.AddDate(0, 0, day).Add(time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute)
	}
	for name, test := range map[string]struct {
		call  price.Call
		usage price.Usage
		want  string
	}{
		"input":                               {price.Call{Model: "chat"}, price.Usage{price.Input: 1}, "0.0000025"},
		"cached":                              {price.Call{Model: "chat"}, price.Usage{price.CacheRead: 1}, "0.00000125"},
		"written":                             {price.Call{Model: "chat"}, price.Usage{price.CacheWrite: 1}, "0.0000025"},
		"for an hour":                         {price.Call{Model: "chat"}, price.Usage{price.CacheWriteHour: 1}, "0.000007"},
		"for an hour, long":                   {price.Call{Model: "chat"}, price.Usage{price.CacheWriteHour: 200_001}, "2.800014"},
		"thought":                             {price.Call{Model: "chat"}, price.Usage{price.Reasoning: 1}, "0.00001"},
		"long":                                {price.Call{Model: "chat"}, price.Usage{price.Input: 200_001}, "1.000005"},
		"in a batch":                          {price.Call{Model: "chat", Service: "batch"}, price.Usage{price.Input: 2}, "0.0000025"},
		"in a batch, long":                    {price.Call{Model: "chat", Service: "batch"}, price.Usage{price.Input: 200_001}, "0.5000025"},
		"with priority":                       {price.Call{Model: "chat", Service: "priority"}, price.Usage{price.Input: 2, price.Output: 1}, "0.000028"},
		"with the other name of priority":     {price.Call{Model: "chat", Service: "fast"}, price.Usage{price.Input: 2, price.Output: 1}, "0.000028"},
		"a name of nothing":                   {price.Call{Model: "hit", Service: "fast"}, price.Usage{price.Input: 1}, "0.000001"},
		"with priority, long":                 {price.Call{Model: "chat", Service: "priority"}, price.Usage{price.Input: 300_000, price.Output: 1000}, "2.72"},
		"a class without a rate of the batch": {price.Call{Model: "chat", Service: "batch"}, price.Usage{price.CacheRead: 4, price.CacheWriteHour: 1}, "0.000006"},
		"a search":                            {price.Call{Model: "chat"}, price.Usage{price.Search: 1}, "0.03"},
		"fast":                                {price.Call{Model: "chat", Speed: "fast"}, price.Usage{price.Input: 1, price.Search: 1}, "0.030005"},
		"fast, in the US, batch, long":        {price.Call{Model: "chat", Speed: "fast", Region: "us", Service: "batch"}, price.Usage{price.Input: 200_001}, "1.200006"},
		"in the EU":                           {price.Call{Model: "chat", Region: "eu"}, price.Usage{price.Input: 10}, "0.0000275"},
		"in a region without a factor":        {price.Call{Model: "chat", Region: "jp"}, price.Usage{price.Input: 10}, "0.000025"},
		"in any region but the usual":         {price.Call{Model: "regional", Region: "us-central1"}, price.Usage{price.Input: 10}, "0.000011"},
		"anywhere":                            {price.Call{Model: "regional", Region: "global"}, price.Usage{price.Input: 10}, "0.00001"},
		"a number in a text":                  {price.Call{Model: "text"}, price.Usage{price.Input: 10}, "0.000004"},
		"digits of a float":                   {price.Call{Model: "text"}, price.Usage{price.Output: 1_000_000_000}, "42"},
		"more digits of floats":               {price.Call{Model: "noise"}, price.Usage{price.Input: 1_000_000_000, price.Output: 1_000_000_000, price.CacheRead: 1_000_000_000}, "4249.99"},
		"digits of an exact float":            {price.Call{Model: "noise"}, price.Usage{price.CacheWrite: 1_000_000_000}, "1000"},
		"a short prompt of a tier":            {price.Call{Model: "tiers"}, price.Usage{price.Input: 31_000, price.CacheRead: 1000}, "0.0311"},
		"a longer one":                        {price.Call{Model: "tiers"}, price.Usage{price.Input: 31_001, price.CacheRead: 1000, price.Output: 1}, "0.064007"},
		"longer than all tiers":               {price.Call{Model: "tiers"}, price.Usage{price.Input: 1_000_000}, "2"},
		"at an hour of the day":               {price.Call{Model: "hours", Time: at(0, 12, 0)}, price.Usage{price.Input: 10}, "0.000003"},
		"off the peak":                        {price.Call{Model: "hours", Time: at(0, 4, 0)}, price.Usage{price.Input: 10, price.Output: 1}, "0.0000027"},
		"after it":                            {price.Call{Model: "hours", Time: at(0, 6, 0)}, price.Usage{price.Input: 10}, "0.000003"},
		"off the peak, long":                  {price.Call{Model: "hours", Time: at(0, 4, 0)}, price.Usage{price.Input: 200_000}, "0.06"},
		"after midnight":                      {price.Call{Model: "hours", Time: at(0, 0, 59)}, price.Usage{price.Input: 10}, "0.0000015"},
		"Saturday in Shanghai":                {price.Call{Model: "hours", Time: at(0, 17, 0)}, price.Usage{price.Input: 10}, "0.0000015"},
		"Monday in Shanghai":                  {price.Call{Model: "hours", Time: at(2, 17, 0)}, price.Usage{price.Input: 10}, "0.000003"},
		"no hour":                             {price.Call{Model: "hours"}, price.Usage{price.Input: 10}, "0.000003"},
		"long from its length on":             {price.Call{Model: "grok"}, price.Usage{price.Input: 128_000}, "0.256"},
		"not long, of grok":                   {price.Call{Model: "grok"}, price.Usage{price.Input: 127_999}, "0.127999"},
		"another name of cached input":        {price.Call{Model: "hit"}, price.Usage{price.CacheRead: 10}, "0.000001"},
		"another name of the model":           {price.Call{Model: "again"}, price.Usage{price.CacheRead: 10}, "0.000001"},
		"a service before the length":         {price.Call{Model: "swapped", Service: "priority"}, price.Usage{price.Input: 200_001}, "1.800009"},
		"an embedding":                        {price.Call{Model: "embedding"}, price.Usage{price.Input: 10}, "0.000001"},
		"a picture":                           {price.Call{Model: "pictures"}, price.Usage{price.ImageOutput: 1000}, "0.03"},
		"a picture from a cache":              {price.Call{Model: "media"}, price.Usage{price.ImageCacheRead: 10}, "0.000002"},
		"a picture from a cache of text":      {price.Call{Model: "chat"}, price.Usage{price.ImageCacheRead: 10}, "0.0000125"},
		"a video":                             {price.Call{Model: "media"}, price.Usage{price.VideoInput: 10, price.VideoOutput: 10}, "0.00007"},
		"a video in a batch":                  {price.Call{Model: "media", Service: "batch"}, price.Usage{price.VideoInput: 10}, "0.00001"},
		"a video of a model of text":          {price.Call{Model: "chat"}, price.Usage{price.VideoInput: 10, price.VideoOutput: 10}, "0.000125"},
		"for twelve hours":                    {price.Call{Model: "caches"}, price.Usage{price.CacheWrite12Hours: 10, price.CacheWrite: 10}, "0.00007"},
		"for twelve hours, long":              {price.Call{Model: "caches"}, price.Usage{price.CacheWrite12Hours: 272_001}, "2.176008"},
		"for twelve hours, flex, long":        {price.Call{Model: "caches", Service: "flex"}, price.Usage{price.CacheWrite12Hours: 272_001}, "1.360005"},
		"for an hour, as much dearer":         {price.Call{Model: "hourly"}, price.Usage{price.CacheWriteHour: 200_001}, "0.800004"},
		"for an hour, in a batch":             {price.Call{Model: "hourly", Service: "batch"}, price.Usage{price.CacheWriteHour: 200_001}, "0.400002"},
		"for twelve hours, as much dearer":    {price.Call{Model: "hourly"}, price.Usage{price.CacheWrite12Hours: 200_001}, "0.800004"},
		"cached in a long prompt, its price":  {price.Call{Model: "hourly"}, price.Usage{price.CacheRead: 200_010}, "0.020001"},
		"cached sound in it":                  {price.Call{Model: "hourly"}, price.Usage{price.AudioCacheRead: 200_010}, "0.060003"},
		"thought in it":                       {price.Call{Model: "hourly"}, price.Usage{price.Input: 200_010, price.Reasoning: 1}, "0.400026"},
		"for twelve hours, of one":            {price.Call{Model: "chat"}, price.Usage{price.CacheWrite12Hours: 1}, "0.000007"},
		"what a model of pictures writes":     {price.Call{Model: "pictures"}, price.Usage{price.Output: 1000}, "0.03"},
	} {
		if got, err := prices.CostOf(test.call, test.usage); err != nil || got.String() != test.want {
			t.Errorf("%s: CostOf(%+v) = %v, %v, want %s", name, test.call, got, err, test.want)
		}
	}
}

// TestAnOddEntryCostsItself reads lists with mistakes, beside an entry without any.
func TestAnOddEntryCostsItself(t *testing.T) {
	const good = `"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06`
	for name, test := range map[string]struct {
		entry, want string
		model       bool // the entry is a model all the same
	}{
		"no object":                    {`5`, `model "m": must be an object, not 5`, false},
		"an array":                     {`[1]`, `model "m": must be an object, not [`, false},
		"null":                         {`null`, `model "m": must be an object, not <nil>`, false},
		"no number":                    {`{"input_cost_per_token": "a lot", "output_cost_per_token": 1e-6}`, `model "m": its price for input cannot be read; model "m": input_cost_per_token: a lot must be a number`, false},
		"output that cannot be read":   {`{"input_cost_per_token": 1e-6, "output_cost_per_token": []}`, `model "m": its price for output cannot be read; model "m": output_cost_per_token: [] must be a number`, false},
		"output that is not there":     {`{"input_cost_per_token": 1e-6, "mode": "chat"}`, `model "m": has no price for tokens of output`, false},
		"a long exponent":              {`{` + good + `, "output_cost_per_reasoning_token": 1e-99999}`, `model "m": output_cost_per_reasoning_token: 1e-99999 is out of bounds`, true},
		"a very long number":           {`{` + good + `, "output_cost_per_reasoning_token": 1` + strings.Repeat("0", 2000) + `}`, `model "m": output_cost_per_reasoning_token: 1` + strings.Repeat("0", 39) + `… is out of bounds`, true},
		"a negative rate":              {`{` + good + `, "cache_read_input_token_cost": -1e-7}`, `model "m": cache_read_input_token_cost: -1e-7 must not be negative`, true},
		"a rate of dollars":            {`{` + good + `, "cache_read_input_token_cost": 3000}`, `model "m": cache_read_input_token_cost: 3000 must be less than 1000 dollars`, true},
		"true":                         {`{` + good + `, "cache_read_input_token_cost": true}`, `model "m": cache_read_input_token_cost: true must be a number`, true},
		"NaN in a text":                {`{` + good + `, "cache_read_input_token_cost": "NaN"}`, `model "m": cache_read_input_token_cost: NaN must be a number`, true},
		"a fraction in a text":         {`{` + good + `, "cache_read_input_token_cost": "1/3"}`, `model "m": cache_read_input_token_cost: 1/3 must be a number`, true},
		"an unknown price":             {`{` + good + `, "input_cost_per_smell": 1}`, `model "m": input_cost_per_smell: is not known`, true},
		"an unknown length":            {`{` + good + `, "input_cost_per_token_above_xk_tokens": 1}`, `model "m": input_cost_per_token_above_xk_tokens: is not known`, true},
		"an unknown service":           {`{` + good + `, "input_cost_per_token_thinking": 1}`, `model "m": input_cost_per_token_thinking: is not known`, true},
		"two services":                 {`{` + good + `, "input_cost_per_token_flex_above_200k_tokens_batches": 1}`, `model "m": input_cost_per_token_flex_above_200k_tokens_batches: has two classes of service`, true},
		"a day":                        {`{` + good + `, "cache_creation_input_token_cost_above_24hr_above_272k_tokens": 1}`, `model "m": cache_creation_input_token_cost_above_24hr_above_272k_tokens: is not known`, true},
		"from no length on":            {`{` + good + `, "input_cost_per_token_above_0k_tokens": 1}`, `model "m": input_cost_per_token_above_0k_tokens: the length of the prompt must be above 0`, true},
		"searches":                     {`{` + good + `, "search_context_cost_per_query": 5}`, `model "m": search_context_cost_per_query: must be an object of prices`, true},
		"a price of searches":          {`{` + good + `, "search_context_cost_per_query": {"low": {}}}`, `model "m": search_context_cost_per_query: low: {} must be a number`, true},
		"tiers without ranges":         {`{` + good + `, "tiered_pricing": [{"input_cost_per_query": 1, "max_results_range": [0, 5]}]}`, `model "m": tiered_pricing: range 1: must have the bounds of its length`, true},
		"tiers that begin late":        {`{"tiered_pricing": [{"range": [5, 9], "input_cost_per_token": 1, "output_cost_per_token": 1}]}`, `model "m": has no price for tokens of input; model "m": tiered_pricing: has no range for prompts of up to 5 tokens`, false},
		"tiers that begin twice":       {`{` + good + `, "tiered_pricing": [{"range": [0, 9], "input_cost_per_token": 1}, {"range": [0, 5], "input_cost_per_token": 1}]}`, `model "m": tiered_pricing: range 2: begins above 0 tokens, as another one does`, true},
		"an unknown price in a tier":   {`{` + good + `, "tiered_pricing": [{"range": [0, 9], "input_cost_per_token": 1, "output_cost_per_smell": 1}]}`, `model "m": tiered_pricing: range 1: output_cost_per_smell is not known`, true},
		"a tier without input":         {`{` + good + `, "tiered_pricing": [{"range": [0, 9], "output_cost_per_token": 1}]}`, `model "m": tiered_pricing: range 1: has no price for tokens of input`, true},
		"hours that are no hours":      {`{` + good + `, "off_peak_pricing": {"hours_utc": "dawn-dusk"}}`, `model "m": off_peak_pricing: hours_utc "dawn-dusk" must be such as 16:30-00:30`, true},
		"no hours":                     {`{` + good + `, "off_peak_pricing": {"input_cost_per_token": 1}}`, `model "m": off_peak_pricing: has no hours`, true},
		"an unknown day":               {`{` + good + `, "off_peak_pricing": {"windows": [{"hours_utc": "01:00-02:00", "weekdays": [8]}]}}`, `model "m": off_peak_pricing: weekday 8 must be from 1 to 7, or a name`, true},
		"an unknown zone":              {`{` + good + `, "off_peak_pricing": {"hours_utc": "01:00-02:00", "weekday_timezone": "Mars"}}`, `model "m": off_peak_pricing: weekday_timezone "Mars" is not known`, true},
		"a price of hours":             {`{` + good + `, "off_peak_pricing": {"hours_utc": "01:00-02:00", "input_cost_per_token": "x"}}`, `model "m": off_peak_pricing: input_cost_per_token: x must be a number`, true},
		"a factor of a region":         {`{` + good + `, "regional_processing_uplift_multiplier_eu": 0}`, `model "m": regional_processing_uplift_multiplier_eu: 0 must be a factor above 0, and below 1000`, true},
		"an unknown factor":            {`{` + good + `, "provider_specific_entry": {"slowly": 0.5}}`, `model "m": provider_specific_entry: not known as a speed or region: slowly`, true},
		"a factor that cannot be read": {`{` + good + `, "provider_specific_entry": {"fast": "very"}}`, `model "m": provider_specific_entry: fast: very must be a number`, true},
		"a member twice":               {`{` + good + `, "input_cost_per_token": 3e-06}`, `model "m": input_cost_per_token: is given more than once, and the last one holds`, true},
		"an alias of nothing":          {`{"alias_of": "nothing"}`, `model "m": is an alias of "nothing", which has no prices here`, false},
		"an alias of itself":           {`{"alias_of": "m"}`, `model "m": is an alias of "m", which has no prices here`, false},
		"a model twice":                {`{` + good + `}, "m": {` + good + `}`, `model "m": is given again further on, which holds`, true},
		"free tokens":                  {`{"input_cost_per_token": 0, "output_cost_per_token": 0.0, "output_cost_per_image": 0}`, `model "m": output_cost_per_image: is not known`, true},
		"free tokens of a song":        {`{"input_cost_per_token": 0, "output_cost_per_token": 0.0, "output_cost_per_image": 0.06}`, `model "m": has no price but output_cost_per_image, which is not known; model "m": output_cost_per_image: is not known`, false},
		"free tokens of a request":     {`{"input_cost_per_token": 0, "output_cost_per_token": 0, "input_cost_per_query": 0.06, "input_cost_per_request": 0.01}`, `model "m": input_cost_per_query: is not known`, true},
		"prices by picture":            {`{"output_cost_per_image": 0.04}`, `model "m": has no price for tokens of input; model "m": output_cost_per_image: is not known`, false},
	} {
		list, err := price.ReadLiteLLM(strings.NewReader(`{"other": {` + good + `}, "m": ` + test.entry + `}`))
		if err != nil {
			t.Errorf("%s: ReadLiteLLM() = %v", name, err)
			continue
		}
		var skipped []string
		for _, s := range list.Skipped {
			skipped = append(skipped, s.String())
		}
		if got := strings.Join(skipped, "; "); got != test.want {
			t.Errorf("%s: skipped %s\nwant %s", name, got, test.want)
		}
		prices, err := price.NewTable(list.Models)
		if err != nil || !prices.Has("other") || prices.Has("m") != test.model {
			t.Errorf("%s: NewTable() = %v; has the other model: %t, the odd one: %t, want %t", name, err, prices.Has("other"), prices.Has("m"), test.model)
		}
	}
}

// TestNoList reads texts that are no lists.
func TestNoList(t *testing.T) {
	for text, want := range map[string]string{
		``:         "LiteLLM's list: EOF",
		`[]`:       "LiteLLM's list: must be an object, not [",
		`{"m": {`:  "LiteLLM's list: unexpected EOF",
		`{"m": {}`: "LiteLLM's list: ",
	} {
		if _, err := price.ReadLiteLLM(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ReadLiteLLM(%s) = %v, want %q", text, err, want)
		}
	}
}

var pin = flag.String("pin", "", "a price list of LiteLLM, whose structure is written to testdata")

// structure is the list of litellm 1.110.2 with its entries and members, but made-up prices. Numbers that came of arithmetic
// with floats have made-up noise. `go test ./price -run Structure -pin FILE` makes it of another release.
const structure = "testdata/litellm-structure.json.gz"

// TestStructureOfTheList reads the whole list: all entries are there by name, and all prices are read or left out by name.
func TestStructureOfTheList(t *testing.T) {
	if *pin != "" {
		check.Fatal(t, "pinStructure()", pinStructure(*pin))
	}
	f := check.Call(os.Open(structure)).Must(t, "os.Open()")
	defer f.Close()
	unzipped := check.Call(gzip.NewReader(f)).Must(t, "gzip.NewReader()")
	list := check.Call(price.ReadLiteLLM(unzipped)).Must(t, "price.ReadLiteLLM()")
	if _, err := price.NewTable(list.Models); err != nil {
		t.Errorf("NewTable() of all models = %v", err)
	}
	whole, left := 0, map[string]int{}
	for _, s := range list.Skipped {
		if s.Member == "" {
			whole++
			left[s.Reason]++
		} else {
			left[s.Member+": "+s.Reason]++
		}
	}
	if got := len(list.Models) + whole; got != list.Entries {
		t.Errorf("%d entries are models or left out, of %d", got, list.Entries)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "entries %d\nmodels %d\nmembers read %d\n", list.Entries, len(list.Models), list.Members)
	names := make([]string, 0, len(left))
	for name := range left {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&text, "left out %d %s\n", left[name], name)
	}
	const golden = "testdata/litellm-structure.golden"
	if *pin != "" {
		check.Fatal(t, "os.WriteFile()", os.WriteFile(golden, []byte(text.String()), 0o600))
	}
	want := check.Call(os.ReadFile(golden)).Must(t, "os.ReadFile()")
	if diff := cmp.Diff(string(want), text.String()); diff != "" {
		t.Errorf("the list is read otherwise, -want +got:\n%s", diff)
	}
}

// pinStructure writes the structure of a list.
func pinStructure(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var list map[string]map[string]any
	if err := d.Decode(&list); err != nil {
		return err
	}
	for name, entry := range list {
		for member, value := range entry {
			switch {
			case strings.HasPrefix(member, "supports_"), strings.HasPrefix(member, "token_count"):
				delete(entry, member)
			case slices.Contains([]string{"mode", "litellm_provider", "alias_of", "max_input_tokens"}, member):
			case strings.Contains(member, "cost"), strings.Contains(member, "pricing"), strings.Contains(member, "multiplier"), member == "provider_specific_entry":
				entry[member] = disguised(name+" "+member, value)
			default:
				delete(entry, member)
			}
		}
	}
	var out bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(zipped).Encode(list); err != nil {
		return err
	}
	if err := zipped.Close(); err != nil {
		return err
	}
	return os.WriteFile(structure, out.Bytes(), 0o600)
}

// disguised returns a value with other prices. Integers, such as bounds of ranges, and texts stay as they are.
func disguised(where string, value any) any {
	switch value := value.(type) {
	case json.Number:
		text := value.String()
		if _, whole := new(big.Int).SetString(text, 10); whole || strings.HasSuffix(text, ".0") {
			return value
		}
		hash := fnv.New64a()
		_, _ = io.WriteString(hash, where)
		made := hash.Sum64()
		mantissa, exponent, scientific := strings.Cut(text, "e")
		if digits := len(strings.Trim(strings.ReplaceAll(mantissa, ".", ""), "0")); digits > 15 {
			mantissa = fmt.Sprintf("%d.%d00000000000%05d", 1+made%9, made/9%1000+1, 1+made%7)
		} else {
			mantissa = fmt.Sprintf("%d.%d", 1+made%9, made/9%1000)
		}
		if !scientific {
			exponent = "-02"
		}
		if strings.Contains(where, "multiplier") || strings.Contains(where, "provider_specific_entry") {
			return json.Number(fmt.Sprintf("1.%d", 1+made%90))
		}
		return json.Number(mantissa + "e" + exponent)
	case []any:
		for i := range value {
			value[i] = disguised(fmt.Sprint(where, i), value[i])
		}
	case map[string]any:
		for name := range value {
			value[name] = disguised(where+" "+name, value[name])
		}
	}
	return value
}
