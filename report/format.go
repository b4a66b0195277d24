package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// unit is a unit of measure and the largest value that is still written in it.
type unit struct {
	name  string
	size  float64
	below float64
}

// threeDigits writes v in the first unit that holds it, with three digits.
func threeDigits(v float64, units []unit) string {
	for i, u := range units {
		x := v / u.size
		if x >= u.below && i < len(units)-1 {
			continue
		}
		digits := 0
		switch {
		case x < 9.995:
			digits = 2
		case x < 99.95:
			digits = 1
		}
		return strconv.FormatFloat(x, 'f', digits, 64) + " " + u.name
	}
	return ""
}

// Each bound is what would round up to one of the next unit.
var timeUnits = []unit{
	{"µs", 1e3, 999.5}, {"ms", 1e6, 999.5}, {"s", 1e9, 599.5}, {"min", 60e9, 599.5}, {"h", 3600e9, math.Inf(1)},
}

func duration(ns uint64) string {
	switch {
	case ns == 0:
		return "0"
	case ns < 1000:
		return strconv.FormatUint(ns, 10) + " ns"
	default:
		return threeDigits(float64(ns), timeUnits)
	}
}

var sizeUnits = []unit{
	{"KiB", 1 << 10, 999.5}, {"MiB", 1 << 20, 999.5}, {"GiB", 1 << 30, 999.5}, {"TiB", 1 << 40, math.Inf(1)},
}

func size(bytes uint64) string {
	switch {
	case bytes == 0:
		return "0"
	case bytes < 1000:
		return strconv.FormatUint(bytes, 10) + " B"
	default:
		return threeDigits(float64(bytes), sizeUnits)
	}
}

// count writes all digits, in groups of three.
func count(n uint64) string {
	digits := strconv.FormatUint(n, 10)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

func percent(share float64) string {
	switch p := 100 * share; {
	case p == 0:
		return "0%"
	case p < 0.1:
		return "<0.1%"
	case p < 9.95:
		return fmt.Sprintf("%.1f%%", p)
	default:
		return fmt.Sprintf("%.0f%%", p)
	}
}

// plural writes a count and what is counted: "1 call", "2 calls".
func plural(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return count(n) + " " + what + "s"
}
