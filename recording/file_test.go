package recording_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stageprof/recording"
	"stageprof/recording/recordingtest"
)

func saved(t *testing.T, r *recording.Recording) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := recording.Write(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func compressed(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestReadGivesWhatWriteSaved(t *testing.T) {
	want := recordingtest.Pipeline()
	got, err := recording.Read(bytes.NewReader(saved(t, want)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
}

// Every field survives, whatever its value, also one that is added later.
func TestReadGivesWhatWriteSavedOfAnything(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 50 {
		want := recordingtest.Random(rng)
		got, err := recording.Read(bytes.NewReader(saved(t, want)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("read back (-want +got):\n%s", diff)
		}
	}
}

// The rows are encoded one by one, and nobody can tell: the text is what
// encoding/json makes of the whole.
func TestWriteIsTheUsualEncoding(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	recordings := []*recording.Recording{recordingtest.Pipeline(), {Format: recording.FormatVersion}}
	for range 50 {
		recordings = append(recordings, recordingtest.Random(rng))
	}
	for _, r := range recordings {
		want, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(bytes.NewReader(saved(t, r)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want)+"\n", string(got)); diff != "" {
			t.Fatalf("saved (-want +got):\n%s", diff)
		}
	}
}

// What can't be written is an error, wherever in the file it comes.
func TestWriteTellsOfErrors(t *testing.T) {
	size := len(saved(t, recordingtest.Pipeline()))
	for _, room := range []int{0, 5, size / 2, size - 1} {
		if err := recording.Write(&limited{room}, recordingtest.Pipeline()); !errors.Is(err, errFull) {
			t.Errorf("with room for %d of %d bytes: %v", room, size, err)
		}
	}
}

var errFull = errors.New("full")

type limited struct{ room int }

func (l *limited) Write(b []byte) (int, error) {
	if len(b) > l.room {
		return 0, errFull
	}
	l.room -= len(b)
	return len(b), nil
}

func TestReadRefuses(t *testing.T) {
	file := saved(t, recordingtest.Pipeline())
	flipped := bytes.Clone(file)
	flipped[len(flipped)/2] ^= 0x10
	badSum := bytes.Clone(file)
	badSum[len(badSum)-5] ^= 1
	tests := map[string][]byte{
		"nothing":              {},
		"text":                 []byte("hello"),
		"JSON that is plain":   []byte(`{"format": 1}`),
		"a beginning":          file[:len(file)/2],
		"all but the sum":      file[:len(file)-8],
		"a changed byte":       flipped,
		"a wrong sum":          badSum,
		"another kind of JSON": compressed(t, `[1, 2]`),
		"no version":           compressed(t, `{}`),
		"a later version":      compressed(t, `{"format": 2}`),
		"a negative count":     compressed(t, `{"format": 1, "calls": [{"count": -1}]}`),
		"two in one file":      append(bytes.Clone(file), file...),
		"text behind it":       compressed(t, `{"format": 1} trailing`),
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			r, err := recording.Read(bytes.NewReader(data))
			if !errors.Is(err, recording.ErrFormat) || r != nil {
				t.Errorf("Read = %v, %v; want ErrFormat", r, err)
			}
		})
	}
}

// A file of another version says so, whatever else is in it.
func TestReadNamesTheVersion(t *testing.T) {
	for text, want := range map[string]string{
		`{"format": 2}`:                        "it is in format 2, and this one reads format 1",
		`{"format": 2, "calls": {"a": "map"}}`: "it is in format 2, and this one reads format 1",
		`{"calls": [], "format": 0}`:           "names no format",
		`{"format": 1, "calls": {"a": "map"}}`: "cannot unmarshal",
	} {
		if _, err := recording.Read(bytes.NewReader(compressed(t, text))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// A reference to a row that does not exist is found on either way.
func TestReferencesAreChecked(t *testing.T) {
	tests := map[string]func(r *recording.Recording){
		"module id":       func(r *recording.Recording) { r.Modules[1].ID = 5 },
		"symbol id":       func(r *recording.Recording) { r.Symbols[0].ID = 1 },
		"symbol's module": func(r *recording.Recording) { r.Symbols[0].Module = len(r.Modules) },
		"frame id":        func(r *recording.Recording) { r.Frames[0].ID = -1 },
		"frame's module":  func(r *recording.Recording) { r.Frames[0].Module = -1 },
		"thread id":       func(r *recording.Recording) { r.Threads[0].ID = 9 },
		"path id":         func(r *recording.Recording) { r.Paths[0].ID = 9 },
		"call's thread":   func(r *recording.Recording) { r.Calls[0].Thread = -1 },
		"call's path":     func(r *recording.Recording) { r.Calls[0].Path = len(r.Paths) },
		"call's symbol":   func(r *recording.Recording) { r.Calls[0].Symbol = len(r.Symbols) },
		"call's caller":   func(r *recording.Recording) { r.Calls[0].Caller = -2 },
		"stage's thread":  func(r *recording.Recording) { r.Stages[0].Thread = -2 },
		"stage's path":    func(r *recording.Recording) { r.Stages[0].Path = -1 },
		"span's thread":   func(r *recording.Recording) { r.Spans[0].Thread = -1 },
		"span's path":     func(r *recording.Recording) { r.Spans[0].Path = len(r.Paths) },
		"span's symbol":   func(r *recording.Recording) { r.Spans[len(r.Spans)-2].Calls[0].Symbol = len(r.Symbols) },
		"open span's path": func(r *recording.Recording) {
			r.Open = []recording.Span{{Thread: -1, Path: len(r.Paths)}}
		},
		"open span's thread": func(r *recording.Recording) {
			r.Open = []recording.Span{{Thread: len(r.Threads)}}
		},
		"depth":   func(r *recording.Recording) { r.Paths[0].Names = make([]string, recording.MaxDepth+1) },
		"version": func(r *recording.Recording) { r.Format = 0 },
		"region's parts": func(r *recording.Recording) {
			r.RegionParts = []recording.RegionParts{{Region: len(r.RegionPaths)}}
		},
		"parts outside regions": func(r *recording.Recording) {
			r.RegionPaths = []recording.RegionPath{{Regions: []int{}}}
			r.RegionParts = []recording.RegionParts{{}}
		},
	}
	for name, damage := range tests {
		t.Run(name, func(t *testing.T) {
			r := recordingtest.Pipeline()
			r.Spans = r.Spans[len(r.Spans)-3:] // most of the file's size
			damage(r)
			if err := recording.Write(io.Discard, r); err == nil {
				t.Error("Write saved it")
			}
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := recording.Read(bytes.NewReader(compressed(t, string(text)))); !errors.Is(err, recording.ErrFormat) {
				t.Errorf("Read: %v, want ErrFormat", err)
			}
		})
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

var errBroken = errors.New("no space left")

func TestWriteReportsErrors(t *testing.T) {
	if err := recording.Write(brokenWriter{}, recordingtest.Pipeline()); !errors.Is(err, errBroken) {
		t.Errorf("Write: %v", err)
	}
}

// Whoever gives the wrong file, or a part of one, learns which of these it is.
func TestReadSaysWhatIsWrong(t *testing.T) {
	file := saved(t, recordingtest.Pipeline())
	for want, data := range map[string][]byte{
		"ends too early": file[:len(file)/2],
		"a profile":      compressed(t, "\x0a\x04\x08\x01"),
	} {
		if _, err := recording.Read(bytes.NewReader(data)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one about %q", err, want)
		}
	}
}

// FuzzRead: a file is refused with ErrFormat, or it can be saved and read
// again with nothing changed.
func FuzzRead(f *testing.F) {
	small := recordingtest.New()
	small.Call(small.Thread(1, "t"), "step/forward", small.Symbol("cuLaunchKernel"), 3, 1000, 500)
	small.Spans(0, "step", 2, 5000, 10)
	for _, r := range []*recording.Recording{small.Recording(), {Format: recording.FormatVersion}} {
		text, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, true)
		f.Add(compressed(f, string(text)), false)
	}
	f.Add([]byte(strings.Repeat("[", 20_000)), true)
	f.Fuzz(func(t *testing.T, data []byte, compress bool) {
		if compress { // the fuzzer does not find a way past the sum
			data = compressed(t, string(data))
		}
		r, err := recording.Read(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, recording.ErrFormat) {
				t.Errorf("Read: %v, want ErrFormat", err)
			}
			return
		}
		again, err := recording.Read(bytes.NewReader(saved(t, r)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r, again, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("saved and read again (-first +second):\n%s", diff)
		}
	})
}
