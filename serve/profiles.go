package serve

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"stageprof/correlate"
	"stageprof/pprofout"
	"stageprof/recording"
)

// maxProfiles bounds the profiles that are in the making at one time.
const maxProfiles = 4

const (
	defaultSeconds = 30
	maxSeconds     = 3600
)

// kind is a kind of profile.
type kind struct {
	name  string
	write func(io.Writer, *correlate.Ledger, pprofout.Options) error
}

var kinds = []kind{
	{"cuda", pprofout.Write},
	{"stages", pprofout.WriteStages},
}

//go:embed page/profiles.html
var profilesPage []byte

func (s *Server) addProfiles(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(profilesPage)
	})
	for _, k := range kinds {
		mux.HandleFunc("GET /debug/pprof/"+k.name, func(w http.ResponseWriter, r *http.Request) { s.profile(w, r, &k) })
	}
}

// profile answers with what happens in the next seconds.
func (s *Server) profile(w http.ResponseWriter, r *http.Request, k *kind) {
	duration, err := requested(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case s.profiles <- struct{}{}:
		defer func() { <-s.profiles }()
	default:
		w.Header().Set("Retry-After", "5")
		http.Error(w, fmt.Sprintf("%d profiles are being made already", maxProfiles), http.StatusTooManyRequests)
		return
	}
	// It fails only where there is no such deadline.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(duration + answerTimeout))
	ledger, err := s.next(r, duration)
	switch {
	case r.Context().Err() != nil: // nobody waits for it any more
		return
	case errors.Is(err, ErrNoTarget):
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	case err != nil:
		s.fail(w, err)
		return
	}
	var b bytes.Buffer
	if err := k.write(&b, ledger, pprofout.Options{}); err != nil {
		s.fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="stageprof-%s.pb.gz"`, k.name))
	_, _ = w.Write(b.Bytes())
}

func (s *Server) fail(w http.ResponseWriter, err error) {
	s.config.Log.Warn("a request failed", "error", err)
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

// requested is how long a profile is to be.
func requested(r *http.Request) (time.Duration, error) {
	text := r.URL.Query().Get("seconds")
	if text == "" {
		return defaultSeconds * time.Second, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n > 0 && n <= maxSeconds) {
		return 0, fmt.Errorf("seconds is %q, and must be a number above 0 up to %d", text, maxSeconds)
	}
	return time.Duration(n * float64(time.Second)), nil
}

// next records for a while: until the time is up, the target has ended, the
// server ends, or nobody waits for it any more.
func (s *Server) next(r *http.Request, duration time.Duration) (*correlate.Ledger, error) {
	session, up := s.follower.current()
	if !up {
		return nil, ErrNoTarget
	}
	before, err := take(session)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(duration)
	defer timer.Stop()
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for waiting := true; waiting; {
		select {
		case <-timer.C:
			waiting = false
		case <-s.ending:
			waiting = false
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-ticker.C:
			now, up := s.follower.current()
			waiting = up && now == session
		}
	}
	after, err := take(session)
	if err != nil {
		return nil, err
	}
	return interval(before, after)
}

// lookInterval is how soon a target's end is noticed.
const lookInterval = 100 * time.Millisecond

func interval(before, after *recording.Recording) (*correlate.Ledger, error) {
	r, err := correlate.Since(before, after)
	if err != nil {
		return nil, err
	}
	return correlate.Build(r), nil
}
