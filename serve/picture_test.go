//go:build browser && picture

package serve

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestPicture is no test: scripts/screenshots.sh makes a picture by it of the page
// at PICTURE_URL, after it was open for a while, into PICTURE_FILE.
func TestPicture(t *testing.T) {
	path, err := exec.Command("../scripts/browser.sh").Output()
	if err != nil {
		t.Fatalf("looking for a Chromium: %v", err)
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.NoSandbox,
		chromedp.ExecPath(strings.TrimSpace(string(path))), chromedp.WindowSize(1040, 860))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.Navigate(os.Getenv("PICTURE_URL")), chromedp.Sleep(40*time.Second)); err != nil {
		t.Fatal(err)
	}
	picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(os.Getenv("PICTURE_FILE"), picture, 0o644); err != nil {
		t.Fatal(err)
	}
}
