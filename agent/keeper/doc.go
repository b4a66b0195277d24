// Package keeper puts probes in and takes them off in a process of its own, so that
// killing the agent, at whatever moment, leaves none in the target.
//
// The kernel changes a target's code in the process that asks for it, and takes probes off
// in the one that closes their last descriptor. Neither works in a process that is being
// killed: what it was just putting in, or taking off, stays (docs/architecture.md). So a
// keeper does both. It is this program once more, has no other business, ends with the
// agent, and then takes off whatever is left.
//
//   - Run is the keeper's own side (run.go).
//   - Current is the keeper of this process as the agent sees it, and Use keeps it
//     running (running.go, keeper.go).
//   - An Attacher does by it what one of package probe does by itself (attacher.go).
//   - Both sides understand each other by packets that carry descriptors (packet.go).
//
// Both have descriptors of each link: if the keeper is killed, the agent goes on recording.
package keeper
