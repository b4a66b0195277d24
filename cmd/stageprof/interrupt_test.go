package main

import (
	"context"
	"syscall"
	"testing"
)

func TestInterrupts(t *testing.T) {
	ctx, second, release := interrupts(context.Background())
	defer release()
	for _, wait := range []<-chan struct{}{ctx.Done(), second} {
		select {
		case <-second:
			t.Fatal("the second interrupt came before it was sent")
		default:
		}
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-wait
	}
}

func TestInterruptsReleased(t *testing.T) {
	ctx, second, release := interrupts(context.Background())
	release()
	if ctx.Err() == nil {
		t.Error("the context outlives its release")
	}
	select {
	case <-second:
		t.Error("a second interrupt without a first one")
	default:
	}
}
