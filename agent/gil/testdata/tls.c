// SPDX-License-Identifier: Apache-2.0
// A library with a thread-local variable, as many are.
static __thread long variable;

long *tls_variable(void) {
    return &variable;
}
