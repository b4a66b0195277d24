package serve

import (
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"stageprof/recording"
	"stageprof/report"
)

//go:embed page/index.html page/page.css page/page.js
var assets embed.FS

func (s *Server) addPage(mux *http.ServeMux) {
	// The folder is embedded.
	files, _ := fs.Sub(assets, "page")
	server := http.FileServerFS(files)
	mux.Handle("GET /{$}", server)
	mux.Handle("GET /page.css", server)
	mux.Handle("GET /page.js", server)
	live := &liveCache{}
	mux.HandleFunc("GET /api/live", func(w http.ResponseWriter, _ *http.Request) {
		b, err := live.get(s.live)
		if err != nil {
			s.fail(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(b)
	})
}

// liveCache lets many pages cost what one does.
type liveCache struct {
	mu   sync.Mutex
	made time.Time
	text []byte
}

const liveAge = 500 * time.Millisecond

func (c *liveCache) get(make func() (*liveState, error)) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.text != nil && time.Since(c.made) < liveAge {
		return c.text, nil
	}
	state, err := make()
	if err != nil {
		return nil, err
	}
	c.text, err = json.Marshal(state)
	c.made = time.Now()
	return c.text, err
}

// liveState is what the page shows: totals, of which it makes differences.
type liveState struct {
	Version string      `json:"version"`
	Up      bool        `json:"up"`
	Target  *liveTarget `json:"target"` // null before the first
	// Epoch tells the windows apart that totals belong to.
	Epoch   string      `json:"epoch"`
	Seconds float64     `json:"seconds"` // since the window's start
	Calls   uint64      `json:"calls"`
	Lost    uint64      `json:"lost"` // calls
	Stages  []liveStage `json:"stages"`
	Spans   []liveSpan  `json:"spans"` // the last ones, latest first
}

type liveTarget struct {
	PID  int    `json:"pid"`
	Comm string `json:"comm"`
	Rank int    `json:"rank"`
}

// liveStage sums a stage over threads, spans that are open included. Parts sum to
// its time outside the stages inside it.
type liveStage struct {
	Stage string             `json:"stage"` // "none" outside any
	Spans uint64             `json:"spans"` // that have ended
	Wall  float64            `json:"wall_seconds"`
	Parts map[string]float64 `json:"parts"` // seconds
}

type liveSpan struct {
	Stage   string             `json:"stage"`
	Thread  string             `json:"thread"`
	Ended   float64            `json:"ended"` // seconds since the window's start
	Wall    float64            `json:"wall_seconds"`
	Child   float64            `json:"child_seconds"`
	Partial bool               `json:"partial"`
	Parts   map[string]float64 `json:"parts"`
}

const liveSpans = 25

func (s *Server) live() (*liveState, error) {
	state := &liveState{Version: s.config.Version, Stages: []liveStage{}, Spans: []liveSpan{}}
	r, up, err := s.follower.snapshot()
	if r == nil {
		if errors.Is(err, ErrNoTarget) {
			err = nil
		}
		return state, err
	}
	state.Up = up
	state.Target = &liveTarget{PID: r.Target.PID, Comm: report.Printable(r.Target.Comm), Rank: r.Target.Rank}
	state.Epoch = r.Window.Start.UTC().Format(time.RFC3339Nano)
	state.Seconds = r.Window.Duration.Seconds()
	for i := range r.Calls {
		state.Calls += r.Calls[i].Count
	}
	for _, loss := range r.Losses {
		if loss.Kind == "calls" && loss.Reason != recording.LossInFlight {
			state.Lost += loss.Count
		}
	}
	state.addStages(r)
	state.addSpans(r)
	return state, nil
}

func (state *liveState) addStages(r *recording.Recording) {
	at := map[string]int{}
	stage := func(path int) *liveStage {
		name := stageName(r.Paths[path].Names)
		i, ok := at[name]
		if !ok {
			i = len(state.Stages)
			at[name] = i
			state.Stages = append(state.Stages, liveStage{Stage: name, Parts: map[string]float64{}})
		}
		return &state.Stages[i]
	}
	for i := range r.Stages {
		row := &r.Stages[i]
		if row.Thread < 0 { // beside the threads' time
			continue
		}
		s := stage(row.Path)
		s.Spans += row.Count + row.PartialCount
		s.Wall += seconds(row.WallNS + row.PartialWallNS)
		addParts(s.Parts, row.Parts.Plus(row.PartialParts))
	}
	for i := range r.Open {
		if r.Open[i].Thread >= 0 {
			stage(r.Open[i].Path).Spans--
		}
	}
	slices.SortFunc(state.Stages, func(a, b liveStage) int { return strings.Compare(a.Stage, b.Stage) })
}

func addParts(to map[string]float64, p recording.Parts) {
	for name, ns := range parts(p) {
		if ns > 0 {
			to[name] += seconds(ns)
		}
	}
}

func (state *liveState) addSpans(r *recording.Recording) {
	last := r.Spans[max(0, len(r.Spans)-liveSpans):]
	for i := len(last) - 1; i >= 0; i-- {
		s := &last[i]
		row := liveSpan{
			Stage: stageName(r.Paths[s.Path].Names), Thread: report.Printable(r.Threads[s.Thread].Name),
			Ended: seconds(s.BeginNS + s.WallNS - min(r.Window.StartNS, s.BeginNS+s.WallNS)),
			Wall:  seconds(s.WallNS), Child: seconds(s.ChildNS), Partial: s.Partial, Parts: map[string]float64{},
		}
		addParts(row.Parts, s.Parts)
		state.Spans = append(state.Spans, row)
	}
}
