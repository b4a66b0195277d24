package pprofout

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"stageprof/correlate"
)

// WriteSeveral writes the profile of several processes that were recorded
// together, each sample with the labels of its own. Of one it is [Write]'s.
func WriteSeveral(w io.Writer, ledgers []*correlate.Ledger, o Options) error {
	p, err := several(ledgers, o, Profile)
	return encode(w, p, err)
}

// WriteStagesOfSeveral does the same for the profile of the stages' wall time.
func WriteStagesOfSeveral(w io.Writer, ledgers []*correlate.Ledger, o Options) error {
	p, err := several(ledgers, o, Stages)
	return encode(w, p, err)
}

func several(ledgers []*correlate.Ledger, o Options, of func(*correlate.Ledger, Options) (*profile.Profile, error)) (*profile.Profile, error) {
	var parts []*profile.Profile
	for _, l := range ledgers {
		p, err := of(l, o)
		if err != nil {
			return nil, err
		}
		if len(ledgers) > 1 {
			nameProcess(p, l)
		}
		parts = append(parts, p)
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	merged, err := profile.Merge(parts)
	if err != nil {
		return nil, fmt.Errorf("merging the profiles of %d processes: %w", len(parts), err)
	}
	merged.TimeNanos, merged.DurationNanos = together(parts)
	if slices.ContainsFunc(ledgers, func(l *correlate.Ledger) bool { return correlate.HasGaps(l.Source) }) {
		merged.DurationNanos = longest(parts)
	}
	return merged, nil
}

// longest is the time that the windows of one process are together, of the one that has
// most. Windows under a budget are nothing that lies between a start and an end.
func longest(parts []*profile.Profile) (duration int64) {
	for _, p := range parts {
		duration = max(duration, p.DurationNanos)
	}
	return duration
}

// nameProcess says in each comment but the title which process it is about.
func nameProcess(p *profile.Profile, l *correlate.Ledger) {
	name := fmt.Sprintf("pid %d, rank %d: ", l.Source.Target.PID, l.Source.Target.Rank)
	for i, comment := range p.Comments {
		switch detail, ok := strings.CutPrefix(comment, "# "); {
		case i == 0:
		case ok:
			p.Comments[i] = "# " + name + detail
		default:
			p.Comments[i] = name + comment
		}
	}
}

// together is from the first window's start to the last one's end: the windows
// lie beside each other, not one behind the other.
func together(parts []*profile.Profile) (start, duration int64) {
	var end int64
	for _, p := range parts {
		if p.TimeNanos != 0 && (start == 0 || p.TimeNanos < start) {
			start = p.TimeNanos
		}
		end = max(end, p.TimeNanos+p.DurationNanos)
	}
	if start == 0 { // none says when
		return 0, end
	}
	return start, min(end-start, int64(maxTogether))
}

// maxTogether keeps clocks that were set meanwhile from making nonsense.
const maxTogether = 366 * 24 * time.Hour
