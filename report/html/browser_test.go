//go:build browser

package html

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"stageprof/recording"
)

// tab is a page open in a headless Chromium, with all that it complained about
// and all that it asked for.
type tab struct {
	context.Context
	t *testing.T

	mu         sync.Mutex
	complaints []string
	requests   []string
}

// browser is one for all tests of the package.
var browser context.Context

func TestMain(m *testing.M) {
	code, err := runWithBrowser(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runWithBrowser(m *testing.M) (code int, err error) {
	path, err := exec.Command("../../scripts/browser.sh").Output()
	if err != nil {
		return 0, fmt.Errorf("looking for a Chromium: %w", err)
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.NoSandbox,
		chromedp.ExecPath(strings.TrimSpace(string(path))), chromedp.WindowSize(1300, 1000))
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	defer cancel()
	browser, cancel = chromedp.NewContext(allocator)
	defer cancel()
	if err := chromedp.Do(browser); err != nil {
		return 0, fmt.Errorf("starting %s: %w", path, err)
	}
	code = m.Run()
	return code, errors.Join(chromedp.Cancel(browser))
}

// open shows the page of a Recording, from a file. What is to be done before
// it loads comes first.
func open(t *testing.T, r *recording.Recording, before ...chromedp.Action[chromedp.Void]) *tab {
	t.Helper()
	return openPage(t, pageOf(t, r), before...)
}

func openPage(t *testing.T, page []byte, before ...chromedp.Action[chromedp.Void]) *tab {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(path, page, 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)
	b := &tab{Context: ctx, t: t}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	b.do(before...)
	b.do(chromedp.Navigate("file://" + path))
	t.Cleanup(func() { b.wantQuiet("file://" + path) })
	return b
}

func (b *tab) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		b.complaints = append(b.complaints, fmt.Sprintf("console.%s", e.Type))
	case *runtime.EventExceptionThrown:
		b.complaints = append(b.complaints, exceptionText(e.ExceptionDetails))
	case *log.EventEntryAdded:
		b.complaints = append(b.complaints, e.Entry.Text)
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	}
}

func exceptionText(e *runtime.ExceptionDetails) string {
	text := fmt.Sprintf("%s, line %d", e.Text, e.LineNumber+1)
	if e.Exception != nil {
		text += ": " + e.Exception.Description
	}
	return text
}

// wantQuiet checks that nothing went wrong on the page, and that it needed
// nothing but itself.
func (b *tab) wantQuiet(address string) {
	b.t.Helper()
	// An answer from the page comes behind all that happened before.
	evaluate[int](b, "0")
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.complaints {
		b.t.Errorf("the page complains: %s", c)
	}
	for _, r := range b.requests {
		if r != address {
			b.t.Errorf("the page asked for %q", r)
		}
	}
}

// forgive forgets what the page complained about and asked for.
func (b *tab) forgive() (complaints []string) {
	evaluate[int](b, "0")
	b.mu.Lock()
	defer b.mu.Unlock()
	complaints, b.complaints, b.requests = b.complaints, nil, nil
	return complaints
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// evaluate gives the value of an expression of JavaScript on the page.
func evaluate[T any](b *tab, expression string, options ...chromedp.EvaluateOption) T {
	b.t.Helper()
	return get(b, chromedp.Evaluate[T](expression, options...))
}

func get[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	value, err := chromedp.Run(b, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

// text gives the text of the elements that a selector finds.
func (b *tab) text(selector string) []string {
	b.t.Helper()
	return evaluate[[]string](b, fmt.Sprintf("[...document.querySelectorAll(%q)].map((e) => e.innerText)", selector))
}

// prefer sets the reader's wishes, e.g. "prefers-color-scheme" to "dark".
func prefer(feature, value string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: feature, Value: value}},
		})
		return err
	})
}
