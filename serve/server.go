package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"stageprof/recording"
)

// Config says what to serve, and to whom.
type Config struct {
	Open   Opener
	Follow bool // record the next target when one has ended, and wait for the first

	Hosts   []string // names of this machine beside addresses and localhost
	Token   string   // "": none is asked for
	GPU     GPU      // nil: there is none
	Export  *Export  // nil: profiles are sent nowhere
	Ready   func()   // called when targets are recorded or waited for; nil: nothing is
	Version string
	Log     *slog.Logger
}

// GPU is what reads the devices, and what they say of one process: a gpu.Poller.
type GPU interface {
	Latest(pid int) *recording.GPU
}

// Timeouts of one request; profiles take as long as they were asked for, on top.
const (
	headerTimeout  = 5 * time.Second
	readTimeout    = 10 * time.Second
	answerTimeout  = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	goodbyeTimeout = 10 * time.Second
	maxHeader      = 16 << 10
)

// Server shows one recording after the other.
type Server struct {
	config   Config
	follower follower
	guard    guard
	profiles chan struct{} // a place for each profile in the making
	ending   chan struct{} // closed when the server is to end
}

// New makes a server; nothing happens before Run.
func New(c Config) *Server {
	return &Server{
		config:   c,
		follower: follower{open: c.Open, follow: c.Follow, export: c.Export, ready: c.Ready, log: c.Log, readingAge: mostReadingAge},
		guard:    guard{hosts: c.Hosts, token: c.Token},
		profiles: make(chan struct{}, maxProfiles),
		ending:   make(chan struct{}),
	}
}

// Run records and answers until the context is done. Profiles that are in the
// making then are answered with what there is. It also ends when the first target
// can't be recorded; without Follow, a target's end leaves its sums to be read.
// It closes the listener. Profiles that wait to be sent are, for a while.
func (s *Server) Run(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.config.Log.Handler(), slog.LevelDebug),
	}
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving: %w", err)
		}
		return nil
	})
	tasks.Go(func() error {
		defer s.closeExport()
		return s.follower.run(ctx)
	})
	if e := s.config.Export; e != nil {
		tasks.Go(func() error {
			e.Sender.Run(ctx)
			return nil
		})
	}
	tasks.Go(func() error {
		<-ctx.Done()
		close(s.ending)
		end, cancel := context.WithTimeout(context.Background(), goodbyeTimeout)
		defer cancel()
		if err := server.Shutdown(end); err != nil {
			return errors.Join(fmt.Errorf("waiting for the last answers: %w", err), server.Close())
		}
		return nil
	})
	return tasks.Wait()
}

// closeExport: no target comes any more.
func (s *Server) closeExport() {
	if e := s.config.Export; e != nil {
		e.Sender.Close()
	}
}

// Handler answers requests.
func (s *Server) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(newCollector(s), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	open := http.NewServeMux()
	open.HandleFunc("GET /healthz", s.health)

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(s.config.Log.Handler(), slog.LevelWarn),
		MaxRequestsInFlight: maxScrapes,
	}))
	s.addProfiles(mux)
	s.addPage(mux)
	open.Handle("GET /", s.guard.authorized(mux))
	return s.guard.protected(open)
}

// maxScrapes bounds the scrapes of metrics at one time.
const maxScrapes = 4

// health says whether a target is being recorded.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if _, up := s.follower.current(); !up {
		http.Error(w, "no process is being recorded", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "recording")
}
