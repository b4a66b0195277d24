//go:build browser

package serve

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// The page shows what goes on, asks nobody else, and complains about nothing.
func TestPageInABrowser(t *testing.T) {
	path, err := exec.Command("../scripts/browser.sh").Output()
	if err != nil {
		t.Fatalf("looking for a Chromium: %v", err)
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.NoSandbox,
		chromedp.ExecPath(strings.TrimSpace(string(path))), chromedp.WindowSize(1100, 900))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()

	r, session := serving(t, Config{Version: "1.2.3"})
	session.step(1)
	events := make(chan string, 1000)
	if err := chromedp.Listen(ctx, func(event any) { note(events, event, r.url) }); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(ctx, chromedp.Navigate(r.url+"/")); err != nil {
		t.Fatal(err)
	}
	count := func(selector string) int {
		n, err := chromedp.Run(ctx, chromedp.Evaluate[int](fmt.Sprintf("document.querySelectorAll(%q).length", selector)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	text := func(selector string) string {
		s, err := chromedp.Run(ctx, chromedp.Evaluate[string](fmt.Sprintf("document.querySelector(%q).innerText", selector)))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	r.eventually("bars of two seconds", func() bool {
		session.step(1) // a made-up second
		time.Sleep(20 * time.Millisecond)
		return count("#chart rect") >= 2
	})
	for selector, want := range map[string]string{
		"#target": "pid 4242", "#status": "recording", "#legend": "step", "#stages": "step", "#spans": "loop",
	} {
		if got := text(selector); !strings.Contains(got, want) {
			t.Errorf("%s shows %q, want %q in it", selector, got, want)
		}
	}
	if count("#stages svg rect") < 3 {
		t.Error("the stage's parts are not drawn")
	}
	if err := chromedp.Do(ctx, chromedp.Click("#pause")); err != nil {
		t.Fatal(err)
	}
	if got := text("#pause"); got != "Go on" {
		t.Errorf("the button says %q when paused", got)
	}
	for len(events) > 0 {
		t.Errorf("the page: %s", <-events)
	}
}

func note(events chan<- string, event any, url string) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		events <- "exception: " + e.ExceptionDetails.Text
	case *log.EventEntryAdded:
		events <- "log: " + e.Entry.Text
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, url+"/") {
			events <- "asked for " + e.Request.URL
		}
	}
}
