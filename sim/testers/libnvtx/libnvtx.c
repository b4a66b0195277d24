// SPDX-License-Identifier: Apache-2.0
// libnvtx.so: exports the range functions that a library of NVTX's version 2 has, as they behave
// while no tool is in the process: each loads the tool's function, of which there is none. The
// answers are those of the public header.
#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

#include "../nvtx.h"

enum { NO_PUSH_POP_TRACKING = -2 };

#define EXPORT __attribute__((visibility("default"), noinline))

// Every function has a pointer of its own, so that no two have the same code.
#define WITHOUT_TOOL(result, name, parameters, arguments, otherwise)                               \
    static result(*volatile tool_##name) parameters;                                               \
    EXPORT result name parameters {                                                                \
        result(*tool) parameters = tool_##name;                                                    \
        return tool ? tool arguments : otherwise;                                                  \
    }

WITHOUT_TOOL(int, nvtxRangePushA, (const char *text), (text), NO_PUSH_POP_TRACKING)
WITHOUT_TOOL(int, nvtxRangePushW, (const wchar_t *text), (text), NO_PUSH_POP_TRACKING)
WITHOUT_TOOL(int, nvtxRangePushEx, (const struct nvtx_attributes *event), (event),
             NO_PUSH_POP_TRACKING)
WITHOUT_TOOL(int, nvtxRangePop, (void), (), NO_PUSH_POP_TRACKING)
WITHOUT_TOOL(int, nvtxDomainRangePushEx, (void *domain, const struct nvtx_attributes *event),
             (domain, event), NO_PUSH_POP_TRACKING)
WITHOUT_TOOL(int, nvtxDomainRangePop, (void *domain), (domain), NO_PUSH_POP_TRACKING)
WITHOUT_TOOL(uint64_t, nvtxRangeStartA, (const char *text), (text), 0)
WITHOUT_TOOL(uint64_t, nvtxRangeStartW, (const wchar_t *text), (text), 0)
WITHOUT_TOOL(uint64_t, nvtxRangeStartEx, (const struct nvtx_attributes *event), (event), 0)
WITHOUT_TOOL(uint64_t, nvtxDomainRangeStartEx, (void *domain, const struct nvtx_attributes *event),
             (domain, event), 0)
WITHOUT_TOOL(void *, nvtxDomainRegisterStringA, (void *domain, const char *text), (domain, text),
             NULL)

// These have no result.
static void (*volatile tool_end)(uint64_t);
static void (*volatile tool_domain_end)(void *, uint64_t);

EXPORT void nvtxRangeEnd(uint64_t id) {
    void (*tool)(uint64_t) = tool_end;
    if (tool)
        tool(id);
}

EXPORT void nvtxDomainRangeEnd(void *domain, uint64_t id) {
    void (*tool)(void *, uint64_t) = tool_domain_end;
    if (tool)
        tool(domain, id);
}
