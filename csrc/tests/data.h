/* SPDX-License-Identifier: MIT
 * Random numbers, and the bytes of messages: what is received is compared with what was sent. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
	GUARD = 64, /* bytes before and after data, which must stay as they are */
	UNTOUCHED = 0xa5,
};

/* The bytes of a message. Those of one with eight bytes or more begin with its number. */
struct data {
	uint64_t number, key;
	uint32_t size;
};

static uint64_t random_state;

/* The mixing function of SplitMix64 (Steele, Lea, Flood 2014). */
static inline uint64_t mixed(uint64_t value)
{
	value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
	return value ^ value >> 31;
}

static inline uint64_t random_below(uint64_t bound)
{
	return mixed(random_state += UINT64_C(0x9e3779b97f4a7c15)) % bound;
}

static inline uint64_t word_of(const struct data *data, size_t offset)
{
	return offset || data->size < 8 ? mixed(data->key + offset) : data->number;
}

static inline void fill(char *place, const struct data *data)
{
	for (size_t at = 0; at < data->size; at += 8) {
		uint64_t word = word_of(data, at);
		size_t left = data->size - at;

		memcpy(place + at, &word, left < 8 ? left : 8);
	}
}

static inline bool is_untouched(const char *place, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if ((unsigned char)place[i] != UNTOUCHED)
			return false;
	return true;
}

/* Whether a place holds the bytes, or (where packets may be lost) is untouched in part. */
static inline bool is_filled(const char *place, const struct data *data, bool in_part)
{
	for (size_t at = 0; at < data->size; at += 8) {
		uint64_t word = word_of(data, at);
		size_t left = data->size - at < 8 ? data->size - at : 8;

		if (memcmp(place + at, &word, left) && !(in_part && is_untouched(place + at, left)))
			return false;
	}
	return true;
}

/* The same, and nothing was written around it. */
static inline bool is_right(const char *place, const struct data *data, bool in_part)
{
	return is_filled(place, data, in_part) && is_untouched(place - GUARD, GUARD) &&
	       is_untouched(place + data->size, GUARD);
}
