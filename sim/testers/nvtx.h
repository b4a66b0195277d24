// SPDX-License-Identifier: Apache-2.0
// What the testers know of NVTX: the public layout of a range's attributes.
#ifndef NVTX_H
#define NVTX_H

#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

enum nvtx_message { NVTX_ASCII = 1, NVTX_UNICODE = 2, NVTX_REGISTERED = 3 };

struct nvtx_attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    union {
        const char *ascii;
        const wchar_t *unicode;
        void *registered;
    } message;
};

_Static_assert(offsetof(struct nvtx_attributes, message_type) == 32, "as in the public header");
_Static_assert(offsetof(struct nvtx_attributes, message) == 40, "as in the public header");
_Static_assert(sizeof(struct nvtx_attributes) == 48, "as in the public header");

#endif
