// Package probe knows the CUDA driver API and puts probes on it.
//
//   - An API is a driver function; its spellings are the names under which a
//     driver exports it: with a version (_v2) and for per-thread default
//     streams (_ptsz, _ptds).
//   - A Group says what the function is for.
//   - A Selector is what a person asked for: groups, functions, spellings.
//   - A Site is one address that gets a pair of probes, on entry and return.
//   - An Attacher puts programs on sites by one Mechanism, and its links take
//     them off again.
package probe
