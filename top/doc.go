// Package top shows a recording while it is made, as a screen that is drawn
// anew after every interval.
//
// # Words
//
//	snapshot   a Recording of everything since the source was opened
//	interval   the time between two snapshots, the newest one is "now"
//	baseline   where "all" begins: the source's opening, until it is reset
//	sample     what one snapshot adds: a Ledger of now and one of all
//	iteration  one complete span of a stage
//	row        a line of the table: a stage, what other threads did for a
//	           stage, or what is outside any stage
//	segment    a part of a bar: a kind of part of wall time; driver time with
//	           the GIL held apart from the rest
//	panel      one table of the screen about a single stage
//
// # Parts
//
// A Source gives snapshots. series turns them into samples. A screen is the
// state that keys change: what is shown, in which order, and how much of it;
// screen.frame turns it into lines of pieces of text, each with a look, and a
// theme into what a terminal takes. All of this is pure. Only Run, which is the
// event loop of a terminal, and Once, which prints one frame, do any I/O.
//
// # Numbers
//
// WALL, CUDA and HELD are of now: per iteration those of a mean complete span,
// per second summed over threads. A stage's CUDA is divided among iterations as
// its wall time is, so that partial spans count in neither. ALL is WALL since
// the baseline, and CHANGE how much longer now's is. CHANGE is no statistics:
// it says what moved, not whether that is more than noise.
//
// When the target has ended there is no now any more: all numbers are of all.
//
// A bar is 100 % of the stage's wall time of now, with the stages inside it as
// one segment. All other numbers include the stages inside.
//
// The order of rows goes by all, so that it is steady; a reset of the baseline
// makes it anew.
//
// Every text that the target chose goes through report.Printable.
package top
