/* SPDX-License-Identifier: MIT
 * Hash tables of objects by number. Their caller holds the lock of the context's objects. */
#include "internal.h"

static struct rw_node **bucket(struct rw_table *table, uint32_t key)
{
	return &table->buckets[key % RW_BUCKETS];
}

void rw_insert(struct rw_table *table, struct rw_node *node, uint32_t key)
{
	struct rw_node **first = bucket(table, key);

	node->key = key;
	node->next = *first;
	*first = node;
}

void rw_remove(struct rw_table *table, struct rw_node *node)
{
	struct rw_node **link = bucket(table, node->key);

	while (*link && *link != node)
		link = &(*link)->next;
	if (*link)
		*link = node->next;
}

struct rw_node *rw_find(struct rw_table *table, uint32_t key)
{
	struct rw_node *node = *bucket(table, key);

	while (node && node->key != key)
		node = node->next;
	return node;
}
