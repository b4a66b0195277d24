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
// # Python stacks
//
// Of some calls of a row the Python stack is known. The row's exact totals are
// divided over the stacks: each gets what was seen of it, and of the rest a
// share in proportion to the calls (for calls, errors, bytes), to the time on
// the CPU and to that off it which its samples stand for. Rounding goes to the
// largest remainders, so the parts always sum to the totals. Calls, errors and
// bytes of one part are each an estimate: they need not fit together.
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
// implies but that never closed. Stages that are Python functions never have
// any: the time of their calls is a part of the stage around them.
//
// # Parts
//
// A Partition says what the thread did in a wall time. Its parts sum to the
// wall time to the nanosecond, whatever the Recording holds:
//
//	cuda cpu      running inside driver calls, by api and gil
//	cuda blocked  off the CPU inside driver calls, by api and gil
//	stageprof     running inside driver calls, for the probes
//	gil wait      asleep until Python's lock is free
//	runnable      ready to run, without a CPU
//	blocked: ...  asleep for another reason: futex, poll, read, sleep,
//	              page fault, other
//	running       running, outside driver calls
//	child stages  inside the stages inside, not divided here
//	unknown       the Recording does not say
//
// Because they have to sum, parts are of raw durations. The probes' bias, which
// is subtracted from calls elsewhere, is a part of its own here, called
// stageprof: count x bias, rounded, taken out of the same calls' time on the
// CPU, at most all of it. So "cuda cpu" is a call's corrected cpu, and
// "cuda blocked" its raw wall without its raw cpu. What the probes cost outside
// of their two clock readings can't be told apart from running.
//
// Driver time is divided by the calls that a thread made in its own time in the
// stage; those on behalf of another thread's stage are part of its time outside
// any stage. Calls are recorded when they end, and for complete and partial
// spans together, so the division is of both together. Driver time without a
// call row is "cuda cpu: other" and "cuda blocked: other": calls that the edge
// of the window cut, that were lost, or that a span did not have room for.
//
// Rows whose parts sum to more than their time, or of which impossible spans
// were taken out, count as unknown. A Recording without parts, as earlier
// versions made them, gives no partitions: they are missing, not 0.
//
// The parts of a stage with the stages inside it are its own and theirs. Where
// rows of the stages inside were lost, what is missing is "child stages".
//
// Single spans have parts too: their child stages are one part. Means and
// percentiles of these are exact, of complete spans only; the Recording may
// hold fewer of them than there were, which Iterations.Missing counts.
//
// # Warm-up
//
// Iterations of a stage can be left out at the beginning of a recording, on
// each thread by itself: a number of them, or the warm-up. What is usual is
// taken from the second half of the thread's complete spans: the median of
// their wall times, and as much on both sides as is a quarter of it, or five
// times the median deviation from it if that is more. The warm-up is what comes
// before the first three usual spans in a row, if more than half of it is
// unusual (otherwise it is a stray span and nothing is left out). It can be slow
// or fast. With fewer than 15 spans, or if the three do not come in the first
// half, there is no saying: nothing is taken for warm-up.
//
// # Comparisons
//
// A Comparison is about iterations: one complete span of a stage is one. Its
// numbers are means per iteration, because those of the parts sum to that of
// the wall time, which medians do not, and because mean x iterations is the
// total. They are of the single spans that the Recording has; a Recording
// without them has means of wall time and nothing to test.
//
// A change is significant if P is below a level. P is the largest of these
// p-values, which come from golang.org/x/perf/benchmath:
//
//   - Welch's t-test of the iterations of all runs of both sides; the U-test
//     where all values of either side are alike, such as numbers of calls.
//   - With fewer than 10 iterations on a side also the Mann-Whitney U-test:
//     then a mean is not normal enough.
//   - With two or more runs on each side also Welch's t-test of the runs' means:
//     iterations of one run are alike for reasons that another run does not
//     have.
//
// The impact of a stage is its change per iteration x the iterations of a run
// after; of a stage that is gone, those of a run before. Significant changes
// come before others, those with the largest impact first.
//
// Parts, driver time and calls are those of the stage itself, the time in the
// stages inside being one part. Adopted calls are known in sums only: they have
// a mean per iteration and no P.
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
// # Regions
//
// A region is a native function that was followed. It divides the calls of a
// stage by what they were for, and takes nothing from it: a call's stage stays what
// it is, and the regions around it are callers of it. A region's time is that
// from its entry to its exit in the stage where it was entered; its calls are
// those made inside it, whatever stage they belong to.
//
// The time of a stage itself is divided by region first, if the Recording says so:
// each stack of regions, and what was outside any, has a Partition, and these sum to
// the stage's, part by part. Calls in regions of which no time is known are with
// what was outside.
//
// # Intervals
//
// Since subtracts two snapshots of one recording and gives the Recording of the
// interval between them. It can be built like any other. Rows are matched by
// what they are about, not by their IDs, which differ between snapshots.
//
// # Whose work was waited for
//
// A call that waits for the device waits for work that stages have queued,
// often others than the one that waits. The Recording divides the time of each
// wait among them, in proportion to the number of operations that each had
// before it. Counts of waits and of operations are exact; the times are an
// estimate, since how long an operation takes is not known. They are raw, and
// those of one thread, stage and function sum to the raw wall time of its
// calls.
//
// # GPUs
//
// NVML speaks of whole devices in periods of its own. Its readings are joined
// with stages by time: what a device did while a stage was open on at least one
// thread. That is not what the stage did: launches return before their kernels
// begin, and other stages, threads and processes use the same device.
//
// # Losses
//
// What was seen but is not in the rows is a loss, by reason. Build adds losses
// of its own for durations that cannot be true: a call or a span that lasted
// longer than the probes were in place lost its begin or its end. When the
// Recording says how many calls were seen, Balance proves that none is
// missing: seen = reported + lost.
package correlate
