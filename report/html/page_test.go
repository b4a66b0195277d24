//go:build browser

package html

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"

	"stageprof/correlate"
	"stageprof/recording"
	"stageprof/recording/recordingtest"
	"stageprof/report"
)

// Whatever the Recording holds, the page complains of nothing, needs nothing
// but itself, and has all of its sections.
func TestPages(t *testing.T) {
	for name, r := range recordings() {
		t.Run(name, func(t *testing.T) {
			b := open(t, r)
			want := []string{"Stages", "Timeline", "GIL"}
			if r.Debts != nil {
				want = append(want, "Sync debt (estimate)")
			}
			if r.PythonStacks != nil {
				want = append(want, "Python")
			}
			want = append(want, "Calls", "Threads", "Lost, and cost of stageprof")
			if diff := cmp.Diff(want, b.text("main h2")); diff != "" {
				t.Errorf("sections (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPagesOfAnything(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) { open(t, recordingtest.Random(rng)) })
	}
}

// The segments of each bar sum to the wall time of its row, and fill the bar.
func TestBarsSumToTheWall(t *testing.T) {
	r := nested()
	b := open(t, r)
	type barSum struct {
		Title string
		Sum   uint64
		Gap   float64 // pixels that the segments leave of the bar
	}
	bars := evaluate[[]barSum](b, `[...document.querySelectorAll("table.stages > tbody > tr:not(.details)")].map((row) => ({
		Title: row.querySelector("bdi").innerText,
		Sum: [...row.querySelectorAll(".segment")].reduce((sum, s) => sum + Number(s.dataset.ns), 0),
		Gap: row.querySelector(".bar").clientWidth - [...row.querySelectorAll(".segment")].reduce((sum, s) => sum + s.getBoundingClientRect().width, 0),
	}))`)

	got := map[string]uint64{}
	for _, bar := range bars {
		got[bar.Title] = bar.Sum
		if bar.Gap < -1 || bar.Gap > 1 {
			t.Errorf("the segments leave %.1f pixels of the bar of %s", bar.Gap, bar.Title)
		}
	}
	l := correlate.Build(r)
	want := map[string]uint64{report.OutsideTitle: l.PartsOutside.WallNS}
	for _, s := range l.Stages {
		want[s.Path.Innermost()] = s.Spans.WindowNS()
		if s.Path.Joined == "step" {
			want[report.ItselfTitle] = s.Spans.ExclusiveWindowNS()
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sums of bars (-want +got):\n%s", diff)
	}
}

// Bars by wall time are as long as it.
func TestBarsByWallTime(t *testing.T) {
	b := open(t, nested())
	b.do(chromedp.Click(`//label[text()="by wall time"]/input`))
	widths := evaluate[map[string]float64](b, `Object.fromEntries([...document.querySelectorAll("table.stages .bar")].map((bar) =>
		[bar.closest("tr").querySelector("bdi").innerText, bar.clientWidth / bar.parentElement.clientWidth]))`)
	l := correlate.Build(nested())
	longest := float64(l.PartsOutside.WallNS)
	for _, s := range l.Stages {
		want := float64(s.Spans.WindowNS()) / longest
		if got := widths[s.Path.Innermost()]; got < want-0.01 || got > want+0.01 {
			t.Errorf("the bar of %s takes %.3f of the longest, want %.3f", s.Path.Joined, got, want)
		}
	}
}

func TestStageDetails(t *testing.T) {
	b := open(t, nested())
	b.do(chromedp.Click(`//tr[contains(., "copy")]//button[@aria-expanded="false"]`))
	text := strings.Join(b.text(".details:not([hidden])"), "\n")
	for _, want := range []string{"cuda blocked: cuStreamSynchronize [gil held]", "blocked: futex", "gil wait", "P99"} {
		if !strings.Contains(text, want) {
			t.Errorf("details lack %q:\n%s", want, text)
		}
	}
}

func TestSearch(t *testing.T) {
	r := recordingtest.Pipeline()
	b := open(t, r)
	var rows, calls, wall uint64
	for _, c := range correlate.Build(r).Calls {
		if c.Symbol == "cuStreamSynchronize" && c.GIL == recording.GILHeld {
			rows, calls, wall = rows+1, calls+c.Count, wall+c.WallNS
		}
	}
	b.do(chromedp.SendKeys("#call-search", "HELD streamsync"))
	status := b.text("#calls [role=status]")[0]
	if want := fmt.Sprintf(": %s, %s", report.Plural(calls, "call"), report.Duration(wall)); rows == 0 || !strings.HasPrefix(status, fmt.Sprintf("%d of ", rows)) || !strings.HasSuffix(status, want) {
		t.Errorf("status %q, want %d rows and %q", status, rows, want)
	}
	for _, row := range b.text("#calls tbody tr") {
		if !strings.Contains(row, "cuStreamSynchronize") || !strings.Contains(row, "held") {
			t.Errorf("found %q", row)
		}
	}
	b.do(chromedp.SendKeys("#call-search", " nothing"))
	if got := b.text("#calls tbody tr"); len(got) != 0 {
		t.Errorf("rows %q, want none", got)
	}
}

func TestSort(t *testing.T) {
	b := open(t, recordingtest.Pipeline())
	column := func() []string {
		return evaluate[[]string](b, `[...document.querySelectorAll("#calls tbody tr")].map((row) => row.cells[6].innerText.replaceAll(",", ""))`)
	}
	const header = `//section[@id="calls"]//th[button[text()="CALLS"]]`
	for _, order := range []string{"descending", "ascending"} {
		b.do(chromedp.Click(header + "/button"))
		sort := get(b, chromedp.AttributeValue(header, "aria-sort")).Value
		numbers := column()
		sorted := slices.IsSortedFunc(numbers, func(x, y string) int {
			if order == "descending" {
				x, y = y, x
			}
			return len(x) - len(y)
		})
		if sort != order || !sorted {
			t.Errorf("sorted %s: %q, want %s", sort, numbers, order)
		}
	}
}

// Waits are shared out to owners, by stages.
func TestSyncDebt(t *testing.T) {
	want := []string{"step/copy", "3", "12.0 ms", "9.00 ms 75%", "3.00 ms 25%"}
	if diff := cmp.Diff(want, open(t, nested()).text("#debt tbody tr > *")); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
}

// Stages to whom less is owed than to ten others share a column, whatever they
// are called.
func TestSyncDebtOfManyOwners(t *testing.T) {
	build := recordingtest.New()
	main, symbol := build.Thread(1, "main"), build.Symbol("cuStreamSynchronize")
	build.Call(main, "wait", symbol, 1, time.Second, 0)
	var want []string
	for i := range 12 {
		name := fmt.Sprint("owner", i)
		if i == 3 {
			name = "(others)"
		}
		build.Debt(main, "wait", symbol, name, 1, time.Duration(20-i)*ms, 1)
		if i < 10 {
			want = append(want, name)
		}
	}
	b := open(t, build.Recording())
	if diff := cmp.Diff(append(want, "(others)"), b.text("#debt thead th")[3:]); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	cells := b.text("#debt tbody tr:first-child td")
	if got := cells[len(cells)-1]; !strings.HasPrefix(got, "19.0 ms ") {
		t.Errorf("owed to the others: %q", got)
	}
}

// The program's own line stands for the calls that a library made for it.
func TestPython(t *testing.T) {
	want := []string{
		"(no Python code known)\tstep\t3.30 ms\t0\t0\t33\t0\tcuMemcpyDtoHAsync_v2, cuLaunchKernel\t",
		"train.py:17 copy\tstep/copy\t12.0 ms\t12.0 ms\t9.00 ms\t3\t2\tcuStreamSynchronize\tmain:60",
	}
	b := open(t, nested())
	got := b.text("#python tbody tr")
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// Everything can be done with the keyboard, in the order of the page.
func TestKeyboard(t *testing.T) {
	b := open(t, nested())
	focused := func() string {
		return evaluate[string](b, "document.activeElement.innerText || document.activeElement.getAttribute('aria-label') || document.activeElement.id")
	}
	var order []string
	for range 80 {
		b.do(chromedp.KeyEvent(kb.Tab))
		order = append(order, focused())
	}
	at := 0
	for _, want := range []string{"Skip to the content", "Stages", "Lost: ", "step", "copy", "Earlier", "Timeline. Left and right move", "step\nstep/copy", "LONGEST SPANS", "call-search"} {
		i := slices.IndexFunc(order[at:], func(s string) bool { return strings.Contains(s, want) })
		if i == -1 {
			t.Fatalf("%q does not get the focus in its turn: %q", want, order)
		}
		at += i + 1
	}

	b.do(chromedp.Focus(".expand"), chromedp.KeyEvent(kb.Enter))
	if got := b.text(".expand[aria-expanded=true]"); len(got) != 1 {
		t.Errorf("Enter opened %q", got)
	}
	status := func() string { return b.text("#timeline [role=status]")[0] }
	whole := status()
	b.do(chromedp.Focus("#timeline .plot"), chromedp.KeyEvent("+"))
	zoomed := status()
	b.do(chromedp.KeyEvent(kb.ArrowRight))
	moved := status()
	b.do(chromedp.KeyEvent("0"))
	if whole != "From 0 to 30.0 s" || zoomed != "From 7.5 s to 22.5 s" || moved != "From 10.5 s to 25.5 s" || status() != whole {
		t.Errorf("ranges %q, %q, %q, %q", whole, zoomed, moved, status())
	}
}

// What the target calls its stages is shown as it is, and never run.
func TestHostileNames(t *testing.T) {
	names := []string{
		`</script><script>document.title = "run"</script>`, `<img src=x onerror="document.title = 'run'">`,
		`<!--<script>`, `{{.Data}}`, `"'` + "`" + `${1}&amp;`, `javascript:alert(1)`, "\u2028", `__proto__`, "constructor",
	}
	build := recordingtest.New()
	thread := build.Thread(1, `<b onclick="x()">thread</b>`)
	for _, name := range names {
		s := build.Spans(thread, "", 2, time.Millisecond, 0)
		s.Path = build.PathOf(name)
	}
	build.Divide()
	build.Unroll(10)
	r := build.Recording()
	r.Target.Cmdline = []string{"<script>", `</title>`}
	b := open(t, r)

	shown := b.text("table.stages > tbody > tr:not(.details) bdi")
	for _, name := range names {
		if !slices.Contains(shown, report.Printable(name)) {
			t.Errorf("stage %q is not shown; there are %q", name, shown)
		}
	}
	title := evaluate[string](b, "document.title")
	scripts := evaluate[int](b, "document.scripts.length")
	foreign := evaluate[int](b, "document.querySelectorAll('img, b, [onclick]').length")
	if title != "stageprof: run.rec" || scripts != 2 || foreign != 0 {
		t.Errorf("title %q, %d scripts, %d elements of the target's", title, scripts, foreign)
	}
}

// A script that gets into the page all the same does not run, and nothing goes
// out.
func TestPolicy(t *testing.T) {
	b := open(t, nested())
	evaluate[chromedp.Void](b, `{
		const script = document.createElement("script");
		script.textContent = "document.title = 'run'";
		document.body.append(script);
		document.body.setAttribute("onclick", "document.title = 'run'");
		document.body.click();
	}`)
	answer := evaluate[string](b, `fetch("https://localhost/").then(() => "went out", (e) => e.name)`, chromedp.EvalAwaitPromise)
	title := evaluate[string](b, "document.title")
	complaints := b.forgive()
	if title != "stageprof: run.rec" || answer != "TypeError" || len(complaints) < 3 {
		t.Errorf("title %q, answer %q, complaints %q", title, answer, complaints)
	}
}

// The page writes numbers as the text report does.
func TestFormat(t *testing.T) {
	b := open(t, nested())
	rng := rand.New(rand.NewPCG(23, 24))
	numbers := []uint64{0, 1, 999, 1000, 9994, 9995, 9996, 99_949, 99_950, 999_499, 999_500, 1_000_000, 599_499_999_999, 599_500_000_000}
	for range 2000 {
		numbers = append(numbers, rng.Uint64()>>11>>rng.IntN(53))
	}
	for name, write := range map[string]func(uint64) string{"duration": report.Duration, "size": report.Size, "count": report.Count} {
		got := evaluate[[]string](b, fmt.Sprintf("(%s).map(stageprof.%s)", strings.Join(strings.Fields(fmt.Sprint(numbers)), ","), name))
		for i, n := range numbers {
			if want := write(n); got[i] != want {
				t.Errorf("%s(%d) = %q, want %q", name, n, got[i], want)
			}
		}
	}
}

func TestColourSchemes(t *testing.T) {
	ground := map[string]string{"light": "rgb(255, 255, 255)", "dark": "rgb(22, 25, 29)"}
	for scheme, want := range ground {
		got := evaluate[string](open(t, nested(), prefer("prefers-color-scheme", scheme)), "getComputedStyle(document.body).backgroundColor")
		if got != want {
			t.Errorf("%s: ground %s, want %s", scheme, got, want)
		}
	}
}

// A hundred thousand spans are drawn, zoomed and listed.
func TestManySpans(t *testing.T) {
	b := open(t, manySpans(100_000))
	const inks = `(() => {
		const c = document.querySelector("#timeline canvas");
		const copy = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
		Object.assign(copy.canvas, { width: c.width, height: c.height });
		copy.drawImage(c, 0, 0);
		return new Set(new Uint32Array(copy.getImageData(0, 0, c.width, c.height).data.buffer)).size;
	})()`
	colours := evaluate[int](b, inks)
	if colours < 4 {
		t.Errorf("%d colours drawn of everything", colours)
	}
	b.do(chromedp.Focus("#timeline .plot"))
	for range 12 {
		b.do(chromedp.KeyEvent("+"))
	}
	colours = evaluate[int](b, inks)
	if rows := b.text("#timeline tbody tr"); colours < 4 || len(rows) == 0 {
		t.Errorf("zoomed: %d colours, %d rows", colours, len(rows))
	}
}

func TestPrint(t *testing.T) {
	if pdf := get(open(t, nested()), chromedp.PrintToPDF()); !bytes.HasPrefix(pdf, []byte("%PDF-")) {
		t.Errorf("printed %d bytes", len(pdf))
	}
}

// A comparison shows what changed, and either of its recordings.
func TestComparison(t *testing.T) {
	b := openPage(t, compared(t, nestedOf(20), faster()))
	if h := b.text(".headline")[0]; !strings.HasPrefix(h, "step/copy: 20.0 ms → 18.0 ms per iteration (-9.9%, p<0.001)") {
		t.Errorf("headline %q", h)
	}
	type pair struct{ Before, After float64 }
	widths := evaluate[map[string]pair](b, `Object.fromEntries([...document.querySelectorAll("#changes tbody > tr:not(.details)")].map((row) => {
		const [Before, After] = [...row.querySelectorAll(".bar")].map((bar) => bar.clientWidth / bar.parentElement.clientWidth);
		return [row.querySelector("bdi").innerText, { Before, After }];
	}))`)
	if w := widths["step/copy"]; w.After < 0.85*w.Before || w.After > 0.95*w.Before {
		t.Errorf("bars of the copy: %v", w)
	}
	if w := widths["step"]; w.After != w.Before {
		t.Errorf("bars of the step: %v", w)
	}
	b.do(chromedp.Click(`//section[@id="changes"]//tr[contains(., "step/copy")]//button`))
	if text := strings.Join(b.text("#changes .details:not([hidden])"), ""); !strings.Contains(text, "cuStreamSynchronize") {
		t.Errorf("details %q", text)
	}

	if shown := b.text("h1")[0]; shown != "stageprof after.rec" {
		t.Errorf("shown first: %q", shown)
	}
	b.do(chromedp.Click(`//label[contains(., "before.rec")]/input`))
	if shown := b.text("h1")[0]; shown != "stageprof before.rec" {
		t.Errorf("shown: %q", shown)
	}
	if n := evaluate[int](b, "document.querySelectorAll('#stages').length"); n != 1 {
		t.Errorf("%d sections of stages", n)
	}
}
