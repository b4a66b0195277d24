// SPDX-License-Identifier: Apache-2.0
//
// stageprof::scope ends its stage however the block is left.
#include "check.h"
#include "stageprof.h"

#include <stdexcept>

static void leave_by_exception() {
    stageprof::scope inner("inner");
    stageprof_begin("forgotten");
    CHECK_EQUAL(stageprof_depth(), 3);
    throw std::runtime_error("out");
}

static void scopes_end_with_their_block() {
    {
        stageprof::scope outer("outer");
        CHECK_EQUAL(stageprof_depth(), 1);
        CHECK_TEXT(stageprof_self()->open[0].name->text, "outer");
        try {
            leave_by_exception();
        } catch (const std::runtime_error &) {
        }
        CHECK_EQUAL(stageprof_depth(), 1);
        const stageprof_name *name = stageprof_intern("again", 5);
        for (int i = 0; i < 3; i++) {
            stageprof::scope again(name);
            CHECK_EQUAL(stageprof_depth(), 2);
        }
    }
    CHECK_EQUAL(stageprof_depth(), 0);
}

int main(int argc, char **argv) {
    static const struct test tests[] = {
        {"scopes_end_with_their_block", scopes_end_with_their_block}};
    return run_tests(tests, 1, argc, argv);
}
