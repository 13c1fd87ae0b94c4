package shell

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"

	"github.com/spf13/cobra"
)

// ofDuration finds the message of the parser of durations.
var ofDuration = regexp.MustCompile(`^(invalid argument .* for ".*--[a-z0-9-]+" flag): time: `)

// ofFlag finds the name of the flag in an error of the parser of flags.
var ofFlag = regexp.MustCompile(`^(invalid argument .* for "(?:-., )?--([a-z0-9-]+)" flag): strconv\.`)

// ofNegative finds a negative number that was taken as a flag.
var ofNegative = regexp.MustCompile(`^unknown shorthand flag: '[0-9.]' in (-[0-9.].*)$`)

// FlagError returns the mistake in a flag, with the rule in place of the message of a parser of numbers or durations.
func FlagError(cmd *cobra.Command, err error) string {
	if m := ofDuration.FindStringSubmatch(err.Error()); m != nil {
		return m[1] + ": must be a duration, such as 500ms, 30s or 2h"
	}
	if m := ofNegative.FindStringSubmatch(err.Error()); m != nil {
		return m[1] + ": a number must not be negative"
	}
	found := ofFlag.FindStringSubmatch(err.Error())
	if found == nil || !errors.As(err, new(*strconv.NumError)) {
		return err.Error()
	}
	rule := "must be a whole number"
	switch kind := cmd.Flag(found[2]).Value.Type(); kind {
	case "uint16":
		rule += fmt.Sprintf(" from 0 to %d", math.MaxUint16)
	case "uint", "uint64":
		rule += fmt.Sprintf(" from 0 to %d", uint64(math.MaxUint64))
	case "float64":
		rule = "must be a number"
	case "bool":
		rule = "must be true or false"
	default:
		rule += fmt.Sprintf(" from %d to %d", math.MinInt64, math.MaxInt64)
	}
	return found[1] + ": " + rule
}
