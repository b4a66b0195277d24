// Package simtest helps tests run programs on the simulated CUDA driver and compare what they saw with what the
// driver counted.
//
// The products of `make -C sim` must exist: nothing here builds them, and a test whose product is missing fails
// with the command that makes it.
//
//	p := simtest.Start(t, simtest.Tester(t, "calls", "--threads", "4"))
//	p.WaitLine("up")     // the driver is mapped
//	… attach …
//	p.Ready()            // from here on calls are counted
//	p.WaitLine("done")
//	… detach …
//	p.Release()
//	p.Wait()
//	want := p.Truth().Counts()
package simtest
