// Package export sends the pprof profile of a recording to servers that keep
// profiles. It knows neither the target nor the kernel.
//
// A Push is one profile with the labels of the whole; a Receiver is a server and
// its protocol:
//
//   - OTLP: OpenTelemetry's profiles (v1development, as of OTLP 1.11, where they
//     are in alpha) over HTTP as protobuf.
//   - Pyroscope: push.v1.PusherService/Push, a Connect call over HTTP.
//   - Parca: parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw, gRPC.
//
// Pyroscope and Parca are given the bytes of the pprof file, OTLP the same
// converted: its samples sum to the same totals, column by column.
//
// Deliver tries until it worked, the receiver refused for good, or the context
// ended. What is worth another try is a temporary error: no connection, an
// overloaded or restarting server. Bad credentials, bad requests and
// unknown paths are not.
//
// A Sender delivers in the background, for pushes that are made again and again:
// it never holds up who makes them, keeps a bounded number of them, and counts
// what it had to drop.
package export
