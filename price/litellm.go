package price

import (
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"
)

// ReadLiteLLM returns the models of LiteLLM's price list, model_prices_and_context_window.json, which its repository
// has. An application ships the copy that it has looked at. Models with prices for tokens are returned, the others left
// out: those that cost by second, picture or page. A member without a meaning for a [Model] is read over. The map may be
// changed before [NewTable] is called with it, to add models or the names of deployments.
func ReadLiteLLM(r io.Reader) (map[string]Model, error) {
	var entries map[string]json.RawMessage
	if err := json.NewDecoder(r).Decode(&entries); err != nil {
		return nil, fmt.Errorf("price: LiteLLM's list: %w", err)
	}
	delete(entries, "sample_spec") // explains the members
	models := make(map[string]Model, len(entries))
	for name, text := range entries {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(text, &members); err != nil {
			return nil, fmt.Errorf("price: LiteLLM's list: model %q: %w", name, err)
		}
		m := Model{Rates: Rates{}}
		for member, value := range members {
			if err := m.take(member, value); err != nil {
				return nil, fmt.Errorf("price: LiteLLM's list: model %q: %s: %w", name, member, err)
			}
		}
		if m.Rates[Input] == nil {
			continue
		}
		if m.Rates[Output] == nil { // such as embeddings
			m.Rates[Output] = new(big.Rat)
		}
		models[name] = m
	}
	return models, nil
}

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
	"input_cost_per_request":                    Request,
}

// services are the ends of members for classes of service.
var services = map[string]string{"_batches": "batch", "_flex": "flex", "_priority": "priority"}

// take takes over a member of an entry.
func (m *Model) take(member string, value json.RawMessage) error {
	if member == "search_context_cost_per_query" {
		return m.takeSearches(value)
	}
	rates, cost := m.Rates, member
	for end, service := range services {
		if base, ok := strings.CutSuffix(member, end); ok && isCost(base) {
			rates, cost = m.service(service), base
		}
	}
	if base, tier, ok := strings.Cut(member, "_above_"); ok && isCost(base) && strings.HasSuffix(tier, "k_tokens") {
		thousands, err := strconv.ParseInt(strings.TrimSuffix(tier, "k_tokens"), 10, 32)
		if err != nil {
			return err
		}
		rates, cost = m.tier(1000*thousands), base
	}
	class, ok := costs[cost]
	if !ok {
		return nil
	}
	rate, err := parseRate(value)
	if rate != nil {
		rates[class] = rate
	}
	return err
}

// takeSearches takes the highest of the prices for searches, which go by the size of the result.
func (m *Model) takeSearches(value json.RawMessage) error {
	var sizes map[string]json.RawMessage
	if err := json.Unmarshal(value, &sizes); err != nil {
		return err
	}
	for _, text := range sizes {
		rate, err := parseRate(text)
		if err != nil {
			return err
		}
		if highest := m.Rates[Search]; rate != nil && (highest == nil || rate.Cmp(highest) > 0) {
			m.Rates[Search] = rate
		}
	}
	return nil
}

func isCost(member string) bool { _, ok := costs[member]; return ok }

func (m *Model) service(name string) Rates {
	if m.Services == nil {
		m.Services = map[string]Service{}
	}
	if m.Services[name].Rates == nil {
		m.Services[name] = Service{Rates: Rates{}}
	}
	return m.Services[name].Rates
}

func (m *Model) tier(above int64) Rates {
	for _, t := range m.Long {
		if t.Above == above {
			return t.Rates
		}
	}
	m.Long = append(m.Long, Tier{above, Rates{}})
	return m.Long[len(m.Long)-1].Rates
}

// parseRate returns a number of dollars, exact as it is written; nil for null.
func parseRate(text json.RawMessage) (*big.Rat, error) {
	if string(text) == "null" {
		return nil, nil
	}
	if len(text) > 40 { // a long exponent would take long
		return nil, fmt.Errorf("%.40s… must have at most 40 characters", text)
	}
	var number json.Number
	if err := json.Unmarshal(text, &number); err != nil {
		return nil, fmt.Errorf("%s must be a number of dollars", text)
	}
	if _, exponent, _ := strings.Cut(strings.ToLower(number.String()), "e"); len(exponent) > 3 {
		return nil, fmt.Errorf("%s is out of bounds", text)
	}
	r, ok := new(big.Rat).SetString(number.String())
	if !ok {
		return nil, fmt.Errorf("%s must be a number of dollars", text)
	}
	return r, nil
}
