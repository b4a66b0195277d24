package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"stageprof/correlate"
	"stageprof/recording"
)

// Spans writes the single spans of the Ledger's Recording as lines of JSON,
// which the package's doc describes, in the order in which they ended.
func Spans(w io.Writer, l *correlate.Ledger) error { return spans(w, l, nil) }

// spans names the process in each line, unless it is nil.
func spans(w io.Writer, l *correlate.Ledger, process *recording.Target) error {
	buffer := bufio.NewWriter(w)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	for s := range l.Spans() {
		line := spanOf(l, &s)
		if process != nil {
			line.PID, line.Rank = &process.PID, &process.Rank
		}
		if err := encoder.Encode(line); err != nil {
			return fmt.Errorf("writing spans: %w", err)
		}
	}
	if err := buffer.Flush(); err != nil {
		return fmt.Errorf("writing spans: %w", err)
	}
	return nil
}

// SpansOfSeveral does the same for some processes, one after the other, and names
// the process in each line.
func SpansOfSeveral(w io.Writer, ledgers []*correlate.Ledger) error {
	if len(ledgers) == 1 {
		return Spans(w, ledgers[0])
	}
	for _, l := range ledgers {
		if err := spans(w, l, &l.Source.Target); err != nil {
			return err
		}
	}
	return nil
}

type jsonSpan struct {
	PID       *int      `json:"pid,omitempty"`
	Rank      *int      `json:"rank,omitempty"`
	TID       int       `json:"tid"`
	Thread    string    `json:"thread"`
	StagePath string    `json:"stage_path"`
	BeginNS   uint64    `json:"begin_ns"`
	WallNS    uint64    `json:"wall_ns"`
	Partial   bool      `json:"partial"`
	Parts     jsonParts `json:"parts"`
}

func spanOf(l *correlate.Ledger, s *correlate.Span) jsonSpan {
	t := &l.Threads[s.Thread]
	return jsonSpan{
		TID: t.TID, Thread: t.Name, StagePath: s.Path.Joined,
		BeginNS: s.BeginNS, WallNS: s.WallNS, Partial: s.Partial, Parts: partsOf(&s.Partition),
	}
}
