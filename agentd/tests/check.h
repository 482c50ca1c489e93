/* The smallest harness that counts: a test program calls check() for everything it claims and
 * returns report(). */
#ifndef AGENTD_TESTS_CHECK_H
#define AGENTD_TESTS_CHECK_H

#include <stdio.h>
#include <string.h>

static int checks_passed, checks_failed;

#define check(claim)                                                                              \
    do {                                                                                          \
        if (claim) {                                                                              \
            checks_passed++;                                                                      \
        } else {                                                                                  \
            checks_failed++;                                                                      \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #claim);                                    \
        }                                                                                         \
    } while (0)

/* The same for what a loop says many times: it counts only when it is wrong. */
#define require(claim)                                                                            \
    do {                                                                                          \
        if (!(claim))                                                                             \
            check(claim);                                                                         \
    } while (0)

/* The line that tools/agentd_unit_tests reads. */
static inline int report(void) {
    printf("%d passed, %d failed\n", checks_passed, checks_failed);
    return checks_failed != 0;
}

#endif
