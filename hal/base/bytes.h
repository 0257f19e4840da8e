/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bytes.h - reading and writing little-endian bytes of untrusted length. A reader or writer that
 * met the end stays failed and gives zeros, so a decoder checks once, at the end.
 */
#ifndef KVP_HAL_BASE_BYTES_H
#define KVP_HAL_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct kvp_reader {
	const uint8_t *pos;
	size_t left;
	bool failed;
};

struct kvp_writer {
	uint8_t *pos;
	size_t left;
	bool failed;
};

static inline struct kvp_reader
kvp_reader_over(const void *buf, size_t len)
{
	return (struct kvp_reader){.pos = buf, .left = len};
}

static inline struct kvp_writer
kvp_writer_over(void *buf, size_t len)
{
	return (struct kvp_writer){.pos = buf, .left = len};
}

/* The next len bytes in place, or NULL. */
static inline const uint8_t *
kvp_read_span(struct kvp_reader *r, size_t len)
{
	const uint8_t *span = r->pos;

	if (r->failed || len > r->left) {
		r->failed = true;
		return NULL;
	}
	r->pos += len;
	r->left -= len;
	return span;
}

static inline void
kvp_read_bytes(struct kvp_reader *r, void *ret_buf, size_t len)
{
	const uint8_t *span = kvp_read_span(r, len);

	if (span != NULL) {
		memcpy(ret_buf, span, len);
	} else {
		memset(ret_buf, 0, len);
	}
}

static inline void
kvp_write_bytes(struct kvp_writer *w, const void *buf, size_t len)
{
	if (w->failed || len > w->left) {
		w->failed = true;
		return;
	}
	memcpy(w->pos, buf, len);
	w->pos += len;
	w->left -= len;
}

/* Looks at every byte whatever it finds, so that its time tells nothing about a near miss: for
 * secrets. */
static inline bool
kvp_bytes_equal_secret(const uint8_t *a, const uint8_t *b, size_t len)
{
	uint8_t diff = 0;

	for (size_t i = 0; i < len; i++) {
		diff |= (uint8_t)(a[i] ^ b[i]);
	}
	return diff == 0;
}

#define KVP_BYTES_OF(type, name)                                                                   \
	static inline type kvp_read_##name(struct kvp_reader *r)                                   \
	{                                                                                          \
		type value;                                                                        \
		kvp_read_bytes(r, &value, sizeof(value));                                          \
		return value;                                                                      \
	}                                                                                          \
	static inline void kvp_write_##name(struct kvp_writer *w, type value)                      \
	{                                                                                          \
		kvp_write_bytes(w, &value, sizeof(value));                                         \
	}
KVP_BYTES_OF(uint8_t, u8)
KVP_BYTES_OF(uint16_t, u16)
KVP_BYTES_OF(uint32_t, u32)
KVP_BYTES_OF(uint64_t, u64)
KVP_BYTES_OF(int32_t, i32)
#undef KVP_BYTES_OF

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "kvpool runs on little-endian machines");

#endif /* KVP_HAL_BASE_BYTES_H */
