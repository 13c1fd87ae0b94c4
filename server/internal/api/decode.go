package api

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/zlimit/zlimit-go/zlimit"
)

// The bounds of requests.
const (
	maxBody     = 64 << 10 // bytes
	maxAmounts  = 32       // of one charge
	maxRequests = 8        // in one acquire
	maxInteger  = 1<<53 - 1
)

// A field reads the value of a field of JSON into some variable. The path names the field in errors.
type field func(path string, raw json.RawMessage) error

// fields are the fields that an object may have, by name.
type fields map[string]field

// invalid returns the error of a field that breaks a rule.
func invalid(path, value, rule string) error {
	return &zlimit.ValidationError{Field: path, Value: value, Reason: rule}
}

// member returns the path of a field of an object.
func member(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// readObject reads an object. Field names are exact, none comes twice, and each is known. So a request means the same to every reader.
func readObject(path string, raw []byte, known fields, required ...string) error {
	at := path
	if at == "" {
		at = "body"
	}
	seen := map[string]bool{}
	err := eachMember(raw, func(name string, value json.RawMessage) error {
		read, ok := known[name]
		switch {
		case !ok:
			return invalid(member(path, name), shown(value), "is no field of this request")
		case seen[name]:
			return invalid(member(path, name), shown(value), "is given twice")
		case string(value) == "null":
			return invalid(member(path, name), "null", "must not be null; leave the field out")
		}
		seen[name] = true
		return read(member(path, name), value)
	})
	if err == errNotObject { //nolint:errorlint // it is never wrapped
		return invalid(at, shown(raw), "must be a JSON object")
	}
	if err != nil {
		return err
	}
	for _, name := range required {
		if !seen[name] {
			return invalid(member(path, name), "", "must be given")
		}
	}
	return nil
}

var errNotObject = invalid("body", "", "must be a JSON object")

// eachMember calls a function for each member of an object, in their order.
func eachMember(raw []byte, each func(name string, value json.RawMessage) error) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	if !utf8.Valid(raw) {
		return invalid("body", "", "must be UTF-8")
	}
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return errNotObject
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return errNotObject
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return errNotObject
		}
		if err := each(name.(string), value); err != nil { // the decoder takes no other names
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return errNotObject
	}
	if _, err := d.Token(); err == nil || d.InputOffset() != int64(len(raw)) && len(bytes.TrimSpace(raw[d.InputOffset():])) > 0 {
		return errNotObject // more follows
	}
	return nil
}

// shown returns a value as an error shows it.
func shown(raw []byte) string {
	const most = 100
	if len(raw) <= most {
		return strings.ToValidUTF8(string(raw), "�")
	}
	return strings.ToValidUTF8(string(raw[:most]), "�") + "…"
}

// text reads a string.
func text(to *string) field {
	return func(path string, raw json.RawMessage) error {
		if raw[0] != '"' || json.Unmarshal(raw, to) != nil {
			return invalid(path, shown(raw), "must be a string")
		}
		return nil
	}
}

// secret reads a string that errors do not show.
func secret(to *string) field {
	return func(path string, raw json.RawMessage) error {
		if text(to)(path, raw) != nil {
			return invalid(path, "", "must be a string")
		}
		return nil
	}
}

// integer reads a whole number between bounds, in any form that JSON has for it.
func integer(to *int64, least, most int64) field {
	return func(path string, raw json.RawMessage) error {
		rule := "must be a whole number from " + strconv.FormatInt(least, 10) + " to " + strconv.FormatInt(most, 10)
		n, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil {
			f, failed := strconv.ParseFloat(string(raw), 64)
			if raw[0] == '"' || failed != nil || f != math.Trunc(f) || math.Abs(f) > maxInteger {
				return invalid(path, shown(raw), rule)
			}
			n = int64(f)
		}
		if n < least || n > most {
			return invalid(path, shown(raw), rule)
		}
		*to = n
		return nil
	}
}

// amounts reads amounts of limits, from a least amount.
func amounts(to *zlimit.Amounts, least int64) field {
	return func(path string, raw json.RawMessage) error {
		found := zlimit.Amounts{}
		err := eachMember(raw, func(name string, value json.RawMessage) error {
			at := path + "[" + name + "]"
			if _, twice := found[name]; twice {
				return invalid(at, shown(value), "is given twice")
			}
			var n int64
			if err := integer(&n, least, maxInteger)(at, value); err != nil {
				return err
			}
			found[name] = n
			return nil
		})
		switch {
		case err == errNotObject: //nolint:errorlint // it is never wrapped
			return invalid(path, shown(raw), "must be an object of amounts by limit")
		case err != nil:
			return err
		case len(found) == 0 || len(found) > maxAmounts:
			return invalid(path, strconv.Itoa(len(found))+" amounts", "must have from 1 to "+strconv.Itoa(maxAmounts))
		}
		*to = found
		return nil
	}
}

// list reads an array, and calls a function for each of its values.
func list(most int, each func(path string, raw json.RawMessage) error) field {
	return func(path string, raw json.RawMessage) error {
		var all []json.RawMessage
		if raw[0] != '[' || json.Unmarshal(raw, &all) != nil {
			return invalid(path, shown(raw), "must be an array")
		}
		if len(all) > most {
			return invalid(path, strconv.Itoa(len(all))+" values", "must have at most "+strconv.Itoa(most))
		}
		for i, value := range all {
			if err := each(path+"["+strconv.Itoa(i)+"]", value); err != nil {
				return err
			}
		}
		return nil
	}
}

// texts reads an array of strings.
func texts(to *[]string, most int) field {
	return list(most, func(path string, raw json.RawMessage) error {
		var s string
		err := text(&s)(path, raw)
		*to = append(*to, s)
		return err
	})
}

// moment reads a time.
func moment(to *time.Time) field {
	return func(path string, raw json.RawMessage) error {
		var s string
		if err := text(&s)(path, raw); err != nil {
			return err
		}
		return readTime(to, path, s)
	}
}

func readTime(to *time.Time, path, s string) (err error) {
	if *to, err = time.Parse(time.RFC3339, s); err != nil {
		return invalid(path, shown([]byte(s)), "must be a time of RFC 3339, such as 2026-11-28T12:00:00Z")
	}
	return nil
}

// leaseTime reads how long a lease can be settled.
func leaseTime(to *time.Duration) field {
	return func(path string, raw json.RawMessage) error {
		const rule = "must be whole seconds, minutes or hours from 1s to 24h, such as 10m"
		var s string
		if err := text(&s)(path, raw); err != nil {
			return err
		}
		digits := strings.TrimRight(s, "smh")
		n, err := strconv.ParseUint(digits, 10, 32)
		if err != nil || len(s) != len(digits)+1 || digits[0] == '0' {
			return invalid(path, shown([]byte(s)), rule)
		}
		*to = time.Duration(n) * map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour}[s[len(s)-1]]
		if *to > maxLease {
			return invalid(path, shown([]byte(s)), rule)
		}
		return nil
	}
}
