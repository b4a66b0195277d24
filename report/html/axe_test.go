//go:build browser && axe

package html

import (
	"os"
	"testing"

	"github.com/chromedp/chromedp"
)

// Nothing that axe-core knows is wrong with the page, light and dark. AXE names
// its script: npm pack axe-core, then package/axe.min.js.
func TestAxe(t *testing.T) {
	axe, err := os.ReadFile(os.Getenv("AXE"))
	if err != nil {
		t.Fatalf("AXE must name axe-core's script: %v", err)
	}
	type violation struct {
		ID, Help string
		Nodes    []struct{ HTML, FailureSummary string }
	}
	for _, scheme := range []string{"light", "dark"} {
		b := open(t, nested(), prefer("prefers-color-scheme", scheme))
		evaluate[chromedp.Void](b, string(axe))
		evaluate[chromedp.Void](b, `document.querySelectorAll(".expand").forEach((e) => e.click())`)
		violations := evaluate[[]violation](b, `axe.run(document, { resultTypes: ["violations"] }).then((r) => r.violations)`, chromedp.EvalAwaitPromise)
		b.forgive() // axe looks for what the page must not load
		for _, v := range violations {
			t.Errorf("%s: %s: %s", scheme, v.ID, v.Help)
			for _, n := range v.Nodes {
				t.Logf("  %s\n  %s", n.HTML, n.FailureSummary)
			}
		}
	}
}
