package price

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
)

// Numbers of a list are decimal. Those with more digits than a float holds are results of arithmetic with floats.
const (
	floatDigits = 15 // significant digits that a float always holds
	keptDigits  = 12 // of a number with more
	longest     = 1100
)

// parseRate returns a rate in dollars.
func parseRate(text json.RawMessage) (*big.Rat, error) {
	r, err := parseRat(text)
	switch {
	case err != nil:
		return nil, err
	case r.Sign() < 0:
		return nil, fmt.Errorf("%s must not be negative", text)
	case r.Cmp(big.NewRat(1000, 1)) >= 0:
		return nil, fmt.Errorf("%s must be less than 1000 dollars", text)
	}
	return r, nil
}

// parseRat returns a number, which may be a text: exact as it is written with up to 15 significant digits, and rounded to 12
// with more.
func parseRat(text json.RawMessage) (*big.Rat, error) {
	number := string(text)
	if strings.HasPrefix(number, `"`) {
		if err := json.Unmarshal(text, &number); err != nil {
			return nil, err
		}
	}
	shown := number
	if len(shown) > 40 {
		shown = shown[:40] + "…"
	}
	var parsed json.Number
	if err := json.Unmarshal([]byte(number), &parsed); err != nil || parsed == "" || strings.HasPrefix(number, `"`) {
		return nil, fmt.Errorf("%s must be a number", shown)
	}
	mantissa, exponent, _ := strings.Cut(strings.ToLower(number), "e")
	if len(number) > longest || len(strings.TrimLeft(exponent, "+-0")) > 2 { // it would take long
		return nil, fmt.Errorf("%s is out of bounds", shown)
	}
	r, ok := new(big.Rat).SetString(number)
	if !ok {
		return nil, fmt.Errorf("%s must be a number", shown)
	}
	digits := strings.Trim(strings.NewReplacer(".", "", "-", "").Replace(mantissa), "0")
	if len(digits) <= floatDigits {
		return r, nil
	}
	return rounded(r), nil
}

// rounded returns a number with 12 significant digits, a half rounded away from zero.
func rounded(r *big.Rat) *big.Rat {
	if r.Sign() == 0 {
		return r
	}
	ten, scale := big.NewRat(10, 1), big.NewRat(1, 1)
	least := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(keptDigits-1), nil))
	shifted := new(big.Rat).Set(r)
	for magnitude := new(big.Rat).Abs(shifted); magnitude.Cmp(least) < 0; magnitude.Mul(magnitude, ten) {
		scale.Mul(scale, ten)
	}
	most := new(big.Rat).Mul(least, ten)
	for magnitude := new(big.Rat).Abs(shifted); magnitude.Cmp(most) >= 0; magnitude.Quo(magnitude, ten) {
		scale.Quo(scale, ten)
	}
	shifted.Mul(shifted, scale)
	half := big.NewRat(int64(shifted.Sign()), 2)
	shifted.Add(shifted, half)
	whole := new(big.Int).Quo(shifted.Num(), shifted.Denom())
	return shifted.Quo(new(big.Rat).SetInt(whole), scale)
}
