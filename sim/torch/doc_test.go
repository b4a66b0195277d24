// Package torch holds what runs stock PyTorch on the simulated driver
// (README.md), and the tests of it. Those that need PyTorch itself have the
// build tag torch.
package torch
