/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz.h - what every target has: one entry point, called with bytes of anybody's making. A target
 * aborts (kvp_assert) when a promise of the decoder is broken; the sanitizers see the rest.
 */
#ifndef KVP_TESTS_FUZZ_FUZZ_H
#define KVP_TESTS_FUZZ_FUZZ_H

#include "hal/base/assert.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif /* KVP_TESTS_FUZZ_FUZZ_H */
