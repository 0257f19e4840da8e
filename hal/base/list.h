/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list.h - a doubly linked list of embedded nodes. The list owns nothing. A node that is on no
 * list points to itself. One owner thread.
 */
#ifndef KVP_HAL_BASE_LIST_H
#define KVP_HAL_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct kvp_list {
	struct kvp_list *next;
	struct kvp_list *prev;
};

#define kvp_container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define kvp_list_for_each(pos, head)                                                               \
	for (struct kvp_list *pos = (head)->next; pos != (head); pos = pos->next)

/* pos may be removed in the body. */
#define kvp_list_for_each_safe(pos, head)                                                          \
	for (struct kvp_list *pos = (head)->next, *pos##_next = pos->next; pos != (head);          \
		pos = pos##_next, pos##_next = pos->next)

static inline void
kvp_list_init(struct kvp_list *list)
{
	list->next = list;
	list->prev = list;
}

static inline bool
kvp_list_empty(const struct kvp_list *list)
{
	return list->next == list;
}

static inline void
kvp_list_insert_before(struct kvp_list *pos, struct kvp_list *node)
{
	node->next = pos;
	node->prev = pos->prev;
	pos->prev->next = node;
	pos->prev = node;
}

static inline void
kvp_list_push_back(struct kvp_list *head, struct kvp_list *node)
{
	kvp_list_insert_before(head, node);
}

static inline void
kvp_list_push_front(struct kvp_list *head, struct kvp_list *node)
{
	kvp_list_insert_before(head->next, node);
}

/* Leaves node on no list. */
static inline void
kvp_list_remove(struct kvp_list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	kvp_list_init(node);
}

/* NULL when empty. */
static inline struct kvp_list *
kvp_list_pop_front(struct kvp_list *head)
{
	struct kvp_list *node = head->next;

	if (node == head) {
		return NULL;
	}
	kvp_list_remove(node);
	return node;
}

#endif /* KVP_HAL_BASE_LIST_H */
