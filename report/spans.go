package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"stageprof/correlate"
)

// Spans writes the single spans of the Ledger's Recording as lines of JSON,
// which the package's doc describes, in the order in which they ended.
func Spans(w io.Writer, l *correlate.Ledger) error {
	buffer := bufio.NewWriter(w)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	for s := range l.Spans() {
		if err := encoder.Encode(spanOf(l, &s)); err != nil {
			return fmt.Errorf("writing spans: %w", err)
		}
	}
	if err := buffer.Flush(); err != nil {
		return fmt.Errorf("writing spans: %w", err)
	}
	return nil
}

type jsonSpan struct {
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
