package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// interrupts returns a context that the first interrupt (^C, a termination, a
// hangup) ends, and a channel that the second one closes. Call release when
// done; it gives the signals their usual meaning back.
func interrupts(parent context.Context) (ctx context.Context, second <-chan struct{}, release func()) {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup means it
		signals = append(signals, syscall.SIGHUP)
	}
	arrived := make(chan os.Signal, 2)
	signal.Notify(arrived, signals...)

	ctx, cancel := context.WithCancel(parent)
	again := make(chan struct{})
	quit := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, act := range []func(){cancel, func() { close(again) }} {
			select {
			case <-arrived:
				act()
			case <-quit:
				return
			}
		}
	}()
	return ctx, again, func() {
		signal.Stop(arrived)
		close(quit)
		<-done
		cancel()
	}
}
