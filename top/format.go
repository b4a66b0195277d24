package top

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"stageprof/report"
)

func duration(ns float64) string {
	if math.IsNaN(ns) {
		return report.Missing
	}
	return report.Duration(uint64(max(ns, 0)))
}

// number writes three digits of small numbers and all of large ones.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return report.Missing
	case v == 0:
		return "0"
	case v < 9.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 99.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return report.Count(uint64(math.Round(v)))
	}
}

// numberCell dims what is no news.
func numberCell(text string) cell {
	if text == report.Missing || text == "0" {
		return cell{line: styled(dim, text)}
	}
	return cell{line: line{{text, plain}}}
}

// Changes below marked are not worth a colour.
const marked = 0.2

func changeCell(share float64) cell {
	if math.IsNaN(share) {
		return cell{line: styled(dim, report.Missing)}
	}
	l := dim
	switch {
	case share >= marked:
		l = bad
	case share <= -marked:
		l = good
	}
	if share >= 9.995 {
		return cell{line: styled(l, fmt.Sprintf("×%.0f", share+1))}
	}
	change := fmt.Sprintf("%+.0f%%", 100*share)
	if change == "+0%" || change == "-0%" {
		change = "0%"
	}
	return cell{line: styled(l, change)}
}

// elapsed writes a running time in whole seconds: it is read while it grows.
func elapsed(d time.Duration) string {
	d = d.Round(time.Second)
	if d < time.Hour {
		return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60)
}
