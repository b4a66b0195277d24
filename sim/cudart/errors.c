// SPDX-License-Identifier: Apache-2.0
//
// Names and texts of errors.
#include "runtime.h"

static const struct {
    rt_error value;
    const char *name;
    const char *text;
} errors[] = {
#define ERROR_TEXT(value, name, text) {value, #name, text},
#include "errors.inc"
#undef ERROR_TEXT
};

enum { ERROR_COUNT = sizeof(errors) / sizeof(errors[0]) };

RUNTIME_API const char *cudaGetErrorName(rt_error error) {
    for (int i = 0; i < ERROR_COUNT; i++)
        if (errors[i].value == error)
            return errors[i].name;
    return "cudaErrorUnknown";
}

RUNTIME_API const char *cudaGetErrorString(rt_error error) {
    for (int i = 0; i < ERROR_COUNT; i++)
        if (errors[i].value == error)
            return errors[i].text;
    return "unknown error";
}
