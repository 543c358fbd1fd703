// Moving and zeroing a span of bytes by a team of threads: what all kernels here are made of.
//
// A span's words are as wide as the addresses allow, 16 bytes at best, so that a warp's accesses are
// whole lines and, across the bus, whole packets. Each thread has several loads under way before its
// first store: the bus answers after one or two microseconds, and to fill 60 GB/s a copy must have
// some hundred kilobytes on the way all the time.
//
// Nothing is included, so that the run-time compiler needs no toolkit's headers.

#pragma once

typedef unsigned char Byte;
typedef long long Size;  // bytes, or a number of things; arenas are larger than 2^31 bytes
typedef unsigned long long Address;

// 16-byte words that one thread has under way.
constexpr int WORDS_IN_FLIGHT = 4;

// A team is the threads that share one span: `rank` is the caller's place among `size`.
struct Team {
    int rank;
    int size;
};

// Bytes pass once: the streaming forms ask the caches not to keep them.
template <typename Word>
__device__ __forceinline__ void copy_words(Byte* to, const Byte* from, Size words, Team team)
{
    Word* target = reinterpret_cast<Word*>(to);
    const Word* source = reinterpret_cast<const Word*>(from);
    const Size stride = Size(team.size) * WORDS_IN_FLIGHT;
    Size first = team.rank;
    for (; first + stride - team.size < words; first += stride) {
        Word held[WORDS_IN_FLIGHT];
#pragma unroll
        for (int i = 0; i < WORDS_IN_FLIGHT; ++i) held[i] = __ldcs(source + first + i * team.size);
#pragma unroll
        for (int i = 0; i < WORDS_IN_FLIGHT; ++i) __stcs(target + first + i * team.size, held[i]);
    }
    for (; first < words; first += team.size) __stcs(target + first, __ldcs(source + first));
}

template <typename Word>
__device__ __forceinline__ void copy_as(Byte* to, const Byte* from, Size nbytes, Team team)
{
    const Size words = nbytes / Size(sizeof(Word));
    copy_words<Word>(to, from, words, team);
    for (Size at = words * Size(sizeof(Word)) + team.rank; at < nbytes; at += team.size) {
        __stcs(to + at, __ldcs(from + at));
    }
}

// Copies `nbytes` that do not overlap. Both ends are read and written as the widest words that fit
// both addresses; what is left at the end, less than a word, goes byte by byte.
__device__ __forceinline__ void copy_span(Byte* to, const Byte* from, Size nbytes, Team team)
{
    const Address bits = reinterpret_cast<Address>(to) | reinterpret_cast<Address>(from);
    if (bits % 16 == 0) {
        copy_as<uint4>(to, from, nbytes, team);
    } else if (bits % 4 == 0) {
        copy_as<unsigned int>(to, from, nbytes, team);
    } else {
        copy_as<Byte>(to, from, nbytes, team);
    }
}

// Zeroes `nbytes` from any address: bytes up to the first multiple of 16, words, bytes.
__device__ __forceinline__ void zero_span(Byte* to, Size nbytes, Team team)
{
    const Size ahead = -reinterpret_cast<Address>(to) % 16;
    const Size head = ahead < nbytes ? ahead : nbytes;
    const Size words = (nbytes - head) / 16;
    for (Size at = team.rank; at < head; at += team.size) __stcs(to + at, Byte(0));
    uint4* target = reinterpret_cast<uint4*>(to + head);
    for (Size at = team.rank; at < words; at += team.size) {
        __stcs(target + at, make_uint4(0, 0, 0, 0));
    }
    for (Size at = head + words * 16 + team.rank; at < nbytes; at += team.size) {
        __stcs(to + at, Byte(0));
    }
}
