// A cryptographic generator for each thread, under a 256-bit key from the operating system: AES-256 in counter mode (FIPS 197;
// NIST SP 800-38A) by the instructions of x86-64, elsewhere ChaCha20 (Bernstein 2008; RFC 8439).
//
// The first 256 bits of each buffer are the key of the next one and are never handed out ("fast key erasure", Bernstein 2017).
// Words are erased when they are handed out. A thread takes a new key from the operating system when it first draws, in a
// process that was forked, and after 1 GiB.
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE  // getentropy
#endif
#include "kernels.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif
#ifdef __APPLE__
#include <sys/random.h>
#endif

enum { LANES = 8, BUFFER = 4096, KEY = 32 };
static const uint64_t MOST = (uint64_t)1 << 30;  // octets under one key of the operating system

typedef uint32_t lanes __attribute__((vector_size(4 * LANES)));
typedef struct {
	uint64_t buffer[BUFFER / 8];
	size_t at;      // octets of the buffer that were handed out
	uint64_t left;  // octets until a new key of the operating system; 0 before the first
	pid_t process;
	unsigned forks;
	int way;  // to write a buffer
} generator;

static _Thread_local generator own;
static atomic_uint forks;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t ended;

void erase(void *memory, size_t octets) {
	static void *(*const volatile set)(void *, int, size_t) = memset;  // a compiler cannot leave out a call that it does not know
	set(memory, 0, octets);
}

#define TURNED(a, bits) ((a) << (bits) | (a) >> (32 - (bits)))
#define QUARTER(a, b, c, d)                       \
	x[a] += x[b], x[d] = TURNED(x[d] ^ x[a], 16); \
	x[c] += x[d], x[b] = TURNED(x[b] ^ x[c], 12); \
	x[a] += x[b], x[d] = TURNED(x[d] ^ x[a], 8);  \
	x[c] += x[d], x[b] = TURNED(x[b] ^ x[c], 7)

// Write a buffer: the blocks of ChaCha20 with nonce 0, counted from 0, LANES at a time: the first words of all come first, then
// their second words, and so on.
static void chacha20(const uint8_t *key, uint8_t *out) {
	static const uint32_t constants[4] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
	lanes begun[16] = {{0}}, x[16];
	uint32_t words[8];
	memcpy(words, key, KEY);
	for (int i = 0; i < 12; i++) begun[i] += i < 4 ? constants[i] : words[i - 4];
	for (unsigned lane = 0; lane < LANES; lane++) begun[12][lane] = lane;
	for (size_t at = 0; at < BUFFER; at += sizeof x, begun[12] += LANES) {
		memcpy(x, begun, sizeof x);
		for (int round = 0; round < 10; round++) {
			QUARTER(0, 4, 8, 12), QUARTER(1, 5, 9, 13), QUARTER(2, 6, 10, 14), QUARTER(3, 7, 11, 15);
			QUARTER(0, 5, 10, 15), QUARTER(1, 6, 11, 12), QUARTER(2, 7, 8, 13), QUARTER(3, 4, 9, 14);
		}
		for (int i = 0; i < 16; i++) x[i] += begun[i];
		memcpy(out + at, x, sizeof x);
	}
	erase(words, sizeof words);
	erase(begun, sizeof begun);
	erase(x, sizeof x);
}

#ifdef __x86_64__
enum { ROUNDS = 14, ABREAST = 8 };  // vectors at a time, each of which waits for its own rounds

// Write the keys of the rounds.
__attribute__((target("aes,sse2"))) static void round_keys(const uint8_t *key, __m128i *keys) {
	memcpy(keys, key, KEY);
	for (int i = 2; i <= ROUNDS; i++) {
		const __m128i words = _mm_aeskeygenassist_si128(keys[i - 1], 0), sum = keys[i - 2] ^ _mm_slli_si128(keys[i - 2], 4);
		keys[i] = sum ^ _mm_slli_si128(sum, 8);
		if (i % 2) keys[i] ^= _mm_shuffle_epi32(words, 0xaa);
		else keys[i] ^= _mm_shuffle_epi32(words, 0xff) ^ _mm_set1_epi32(1 << (i / 2 - 1));
	}
}

// Write a buffer: the blocks 0, 1, ... encrypted, as numbers of 128 bits of which the first octet is the highest.
#define AES256(vector, of_key, first, round, last)                                                             \
	enum { EACH = sizeof(vector) / 16 };                                                                       \
	__m128i keys[ROUNDS + 1];                                                                                  \
	round_keys(key, keys);                                                                                     \
	for (int block = 0; block < BUFFER / 16; block += EACH * ABREAST, out += sizeof(vector) * ABREAST) {       \
		vector x[ABREAST];                                                                                     \
		for (int i = 0; i < ABREAST; i++) x[i] = first(block + EACH * i) ^ of_key(keys[0]);                  \
		for (int r = 1; r < ROUNDS; r++)                                                                       \
			for (int i = 0; i < ABREAST; i++) x[i] = round(x[i], of_key(keys[r]));                             \
		for (int i = 0; i < ABREAST; i++) x[i] = last(x[i], of_key(keys[ROUNDS]));                             \
		memcpy(out, x, sizeof x);                                                                              \
	}                                                                                                          \
	erase(keys, sizeof keys)

#define KEY_OF(key) (key)
#define NUMBER(n) _mm_set_epi64x((long long)((uint64_t)(n) << 56), 0)
#define NUMBERS(n) _mm256_set_epi64x((long long)((uint64_t)((n) + 1) << 56), 0, (long long)((uint64_t)(n) << 56), 0)
__attribute__((target("aes,sse2"))) static void aes256(const uint8_t *key, uint8_t *out) {
	AES256(__m128i, KEY_OF, NUMBER, _mm_aesenc_si128, _mm_aesenclast_si128);
}

__attribute__((target("aes,vaes,avx2"))) static void aes256_twice(const uint8_t *key, uint8_t *out) {
	AES256(__m256i, _mm256_broadcastsi128_si256, NUMBERS, _mm256_aesenc_epi128, _mm256_aesenclast_epi128);
}
#endif

// Return the best way to write a buffer that the processor has: 0 for ChaCha20, 1 for AES, 2 for AES on two blocks at a time.
EXPORT int ldpsql_best_way(void) {
	int way = 0;
#ifdef __x86_64__
	unsigned a, b, c, d;
	if (__get_cpuid(1, &a, &b, &c, &d) && c >> 25 & 1) way = 1;
	if (way && __builtin_cpu_supports("avx2") && __get_cpuid_count(7, 0, &a, &b, &c, &d) && c >> 9 & 1) way = 2;
#endif
	return way;
}

static void expand(int way, const uint8_t *key, uint8_t *out) {
#ifdef __x86_64__
	if (way == 2) aes256_twice(key, out);
	else if (way == 1) aes256(key, out);
	else
#endif
	chacha20(key, out);
}

static void forked(void) { atomic_fetch_add(&forks, 1); }
static void erase_generator(void *generator_of_thread) { erase(generator_of_thread, sizeof(generator)); }
static void set_up(void) {
	pthread_key_create(&ended, erase_generator);
	pthread_atfork(NULL, NULL, forked);
}

static bool refill(generator *g) {
	uint8_t key[KEY];
	if (g->left < BUFFER) {
		if (getentropy(key, KEY)) return false;
		g->left = MOST;
	} else {
		memcpy(key, g->buffer, KEY);
	}
	expand(g->way, key, (uint8_t *)g->buffer);
	erase(key, KEY);
	g->left -= BUFFER;
	g->at = KEY;
	return true;
}

// Return where the next words are, and how many of up to `count` follow each other; NULL if there is no key.
static uint64_t *next(generator *g, size_t *count) {
	if (g->at == BUFFER && !refill(g)) return NULL;
	uint64_t *words = g->buffer + g->at / 8;
	*count = smaller(*count, (BUFFER - g->at) / 8);
	g->at += 8 * *count;
	return words;
}

static bool hand_out(generator *g, uint64_t *out, size_t count) {
	for (size_t part; count; out += part, count -= part) {
		uint64_t *words = next(g, (part = count, &part));
		if (!words) return false;
		memcpy(out, words, 8 * part);
		memset(words, 0, 8 * part);
	}
	return true;
}

static generator *of_thread(void) {
	generator *g = &own;
	pid_t process = getpid();
	if (!g->left || g->process != process || g->forks != atomic_load(&forks)) {
		pthread_once(&once, set_up);
		pthread_setspecific(ended, g);
		erase(g, sizeof *g);
		g->at = BUFFER, g->process = process, g->forks = atomic_load(&forks), g->way = ldpsql_best_way();
	}
	return g;
}

bool random_words(uint64_t *out, size_t count) { return hand_out(of_thread(), out, count); }

uint64_t *some_words(size_t *count) { return next(of_thread(), count); }

bool take_words(const uint64_t **given, uint64_t *out, size_t count) {
	if (!*given) return random_words(out, count);
	memcpy(out, *given, 8 * count);
	*given += count;
	return true;
}

EXPORT int ldpsql_random_words(size_t count, uint64_t *out) { return random_words(out, count) ? DRAWN : NO_RANDOMNESS; }

// Write the words that a generator gives after a key, in one of the ways that the processor has: a test compares them with
// another implementation of the same cipher.
EXPORT void ldpsql_expand(const uint8_t *key, int way, uint64_t *out, size_t count) {
	generator g = {.left = UINT64_MAX, .at = BUFFER, .way = (int)smaller((size_t)way, (size_t)ldpsql_best_way())};
	memcpy(g.buffer, key, KEY);
	hand_out(&g, out, count);
	erase(&g, sizeof g);
}
