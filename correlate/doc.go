// Package correlate joins the tables of a Recording into a Ledger: which stage
// of the target made which driver calls, what they cost, and what was lost. It
// is pure: no kernel, no clock, no file.
//
// The words are those of package recording. This page says what the Ledger's
// numbers mean.
//
// # Rows that look alike are one row
//
// A Recording tells rows apart that a reader can't: the same function in two
// copies of the driver library, a thread id that was used twice by threads of
// one name, two stage paths that are written alike because a name contains
// "/". Such rows are summed. A call's visible key is thread name, thread id,
// stage path, symbol, gil and attribution; what a profile shows beyond it
// (module and caller) is kept apart in the call's sites.
//
// # Durations
//
// Every measured call includes the symbol's bias, the time that the probes
// themselves add between their two clock readings. It is subtracted from wall
// and from cpu (the probes run on the calling thread), per row and in total:
//
//	wall = max(0, raw wall - count x bias)
//	cpu  = min(wall, max(0, raw cpu - count x bias))
//
// The measured sums stay beside them as raw. A span's wall time is not
// corrected: the target really spent it, the profiler's share included.
//
// Percentiles come from a histogram with one bucket per power of two. The true
// raw percentile lies in the same bucket as the reported one, so the report is
// off by less than a factor of two; the smallest and the largest duration are
// exact. The last bucket, 2.1 s and more, is bounded only by the largest.
//
// # Stages
//
// A stage's wall time includes the stages inside it; its exclusive time is
// what remains without them. Both are sums over threads: two threads that are
// one second each in a stage have spent two.
//
// Spans that the edge of the window cut are partial. They are counted apart,
// with the part of their time inside the window, so that a mean per span is
// one of complete spans only. Calls cannot be told apart so: a partial span's
// calls inside the window are recorded like all others. Therefore a share of a
// stage's wall time always has complete and partial time as its whole.
//
// A stage that no span was seen of has no times: they are missing, not 0. That
// happens when its end marker was lost, and for the parents that a path
// implies but that never closed.
//
// # Whose calls
//
// A stage's own calls are those of attribution own: the thread that opened the
// stage made them, so they are part of its wall time. Own counts the calls
// whose innermost stage it is, Within also those of the stages inside it.
//
// Adopted calls (autograd, process) were made by other threads on behalf of
// the stage, while its own thread did something else. They are listed beside
// the stage and never added to its calls or to its share of wall time.
//
// # Losses
//
// What was seen but is not in the rows is a loss, by reason. Build adds losses
// of its own for durations that cannot be true: a call or a span that lasted
// longer than the probes were in place lost its begin or its end. When the
// Recording says how many calls were seen, Balance proves that none is
// missing: seen = reported + lost.
package correlate
